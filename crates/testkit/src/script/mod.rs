//! Scripts in packetdrill's language, in virtual time: what goes in, what must come out and when, and what the calls of a
//! program give. `docs/scripts.md` has the language.
//!
//! | file | what |
//! |---|---|
//! | `lexer`, `parse`, `packets` | reads scripts |
//! | `syntax`, `options`, `notation` | what was read, and how it is written |
//! | `settings`, `names`, `icmp` | `--option=value`, names of numbers |
//! | `run`, `calls`, `assert` | runs it |
//! | `flow`, `wire` | a script's numbers and those of the wire; packets |

mod assert;
mod calls;
mod flow;
mod icmp;
mod lexer;
mod names;
mod notation;
mod options;
mod packets;
mod parse;
mod run;
mod settings;
mod syntax;
mod wire;

use std::fmt;

use lexer::Cursor;
use run::Runner;
use settings::Settings;
pub use syntax::Place;
use syntax::{Body, Event, Ip, Packet, Tcp};

/// Why a script failed, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The event that failed.
    pub place: Place,
    /// What is wrong, in words and in packetdrill's notation.
    pub message: String,
}

impl Failure {
    fn new(place: &Place, message: impl Into<String>) -> Self {
        Self {
            place: place.clone(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}",
            self.place.file, self.place.line, self.message
        )
    }
}

impl std::error::Error for Failure {}

/// Runs a script, once for each version of IP that it asks for. `include` gives the text of a file that the script includes.
///
/// # Errors
/// The first thing that is not as the script says, or what cannot be read in it.
pub fn run(
    file: &str,
    text: &str,
    include: &dyn Fn(&str) -> Option<String>,
) -> Result<(), Failure> {
    let mut settings = Settings::default();
    let events = read(file, text, include, &mut settings)?;
    for (six, wanted) in [(false, settings.v4), (true, settings.v6)] {
        if !wanted {
            continue;
        }
        let version = if six { "IPv6: " } else { "" };
        Runner::new(&settings, six)
            .run(&events)
            .map_err(|mut failure| {
                failure.message.insert_str(0, version);
                failure
            })?;
    }
    Ok(())
}

fn read(
    file: &str,
    text: &str,
    include: &dyn Fn(&str) -> Option<String>,
    settings: &mut Settings,
) -> Result<Vec<Event>, Failure> {
    let mut cursor = Cursor::new(file, text);
    let mut events = Vec::new();
    while cursor.takes("--") {
        let place = cursor.place();
        let option = cursor.line();
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if name == "include" {
            let Some(text) = include(value) else {
                return Err(Failure::new(&place, format!("there is no file {value:?}")));
            };
            events.extend(read(value, &text, include, settings)?);
        } else if settings.set(name, value).is_none() {
            let message = format!("--{option}: there is no such option or value");
            return Err(Failure::new(&place, message));
        }
    }
    events.extend(parse::events(&mut cursor)?);
    Ok(events)
}

/// A packet that nothing is expected of.
fn anything() -> Packet {
    Packet {
        ip: Ip::default(),
        ports: None,
        body: Body::Tcp(Tcp {
            flags: 0,
            seq: 0,
            len: 0,
            ack: 0,
            window: None,
            urgent: 0,
            options: None,
        }),
    }
}
