//! Shell commands of scripts: those that set sysctls set them here, and the others do nothing. None of them is run.

use crate::world::World;

/// What a word of a command sets: `net.ipv4.tcp_sack=1`, `net/ipv4/tcp_sack=1`, `/proc/sys/net/ipv4/tcp_sack=1`.
fn setting(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let name = name.rsplit(['.', '/']).next()?;
    name.starts_with("tcp_").then_some((name, value))
}

/// The words of a line, quotes taken away.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quoted) = (String::new(), false);
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            '#' if !quoted && word.is_empty() => break,
            c if c.is_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Does what a command means here.
pub(crate) fn run(world: &mut World, command: &str) {
    for line in command
        .replace("\\\n", " ")
        .replace("||", ";")
        .split(['\n', ';'])
    {
        let words = words(line);
        let Some(program) = words.first().and_then(|word| word.rsplit('/').next()) else {
            continue;
        };
        match program {
            "defaults.sh" => world.settings.set_suite(),
            "sysctl" | "set_sysctls.py" => {
                for (name, value) in words.iter().filter_map(|word| setting(word)) {
                    world.set(name, value);
                }
            }
            "ip" if words.get(1).is_some_and(|word| word == "tcp_metrics") => world.forget(),
            "ethtool" if words.windows(2).any(|pair| pair == ["tso", "off"]) => {
                world.set("tso", "0");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_all_their_forms() {
        let tcp_sack = Some(("tcp_sack", "0"));
        assert_eq!(setting("net.ipv4.tcp_sack=0"), tcp_sack);
        assert_eq!(setting("net/ipv4/tcp_sack=0"), tcp_sack);
        assert_eq!(setting("/proc/sys/net/ipv4/tcp_sack=0"), tcp_sack);
        assert_eq!(setting("-q"), None);
        assert_eq!(setting("if=/dev/zero"), None);
    }

    #[test]
    fn words_with_quotes_and_remarks() {
        assert_eq!(
            words("sysctl -q a=\"1 2\" # why"),
            ["sysctl", "-q", "a=1 2"]
        );
        assert_eq!(words("  # nothing"), [""; 0]);
    }
}
