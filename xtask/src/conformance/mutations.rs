//! The list of mutations: for each MUST, how its rule is switched off, and which test must then fail.

use std::io;
use std::path::Path;

/// Where the lists are, from the root of the tree.
pub(crate) const FOLDER: &str = "xtask/mutations";

/// A rule switched off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mutation {
    /// `MUST-1`; several may have the same.
    pub(crate) label: String,
    /// The file, from the root.
    pub(crate) file: String,
    /// What occurs there exactly once.
    pub(crate) find: String,
    /// What it becomes.
    pub(crate) replace: String,
    /// The test that must fail then, as `cargo nextest list` names it.
    pub(crate) test: String,
}

/// All mutations, and the labels for which none is possible, with the reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mutations {
    pub(crate) mutations: Vec<Mutation>,
    pub(crate) none: Vec<(String, String)>,
}

impl Mutations {
    /// Those of all lists below `root`, in the order of the files.
    ///
    /// # Errors
    /// If a list cannot be read, or is none.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut all = Self::default();
        let folder = root.join(FOLDER);
        if !folder.exists() {
            return Ok(all);
        }
        let mut paths: Vec<_> = std::fs::read_dir(&folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()?;
        paths.sort();
        for path in paths {
            if path.extension().is_some_and(|ext| ext == "toml") {
                let text = std::fs::read_to_string(&path)?;
                let error = |e: String| io::Error::other(format!("{}: {e}", path.display()));
                let list = Self::parse(&text).map_err(error)?;
                all.mutations.extend(list.mutations);
                all.none.extend(list.none);
            }
        }
        Ok(all)
    }

    /// Reads a list.
    ///
    /// # Errors
    /// What is missing, or not to be there.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|e| format!("{e}"))?;
        let mut list = Self::default();
        for (name, entries) in &table {
            let entries = entries.as_array().ok_or(format!("`{name}` is no list"))?;
            for entry in entries {
                match name.as_str() {
                    "mutation" => list.mutations.push(Mutation {
                        label: field(entry, "label")?,
                        file: field(entry, "file")?,
                        find: field(entry, "find")?,
                        replace: field(entry, "replace")?,
                        test: field(entry, "test")?,
                    }),
                    "none" => list
                        .none
                        .push((field(entry, "label")?, field(entry, "reason")?)),
                    other => return Err(format!("`{other}` is neither `mutation` nor `none`")),
                }
            }
        }
        Ok(list)
    }
}

fn field(entry: &toml::Value, name: &str) -> Result<String, String> {
    let value = entry.get(name).and_then(toml::Value::as_str);
    value
        .map(str::to_owned)
        .ok_or_else(|| format!("an entry without `{name}`: {entry}"))
}

impl Mutation {
    /// The file's text with the rule switched off.
    ///
    /// # Errors
    /// If the text to replace is not there exactly once.
    pub(crate) fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.find).count() {
            1 if self.find == self.replace => Err("the replacement changes nothing".to_owned()),
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            0 => Err(format!(
                "{}: the text is not there: {:?}",
                self.file, self.find
            )),
            n => Err(format!(
                "{}: the text is there {n} times: {:?}",
                self.file, self.find
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutation(find: &str, replace: &str) -> Mutation {
        Mutation {
            label: "MUST-1".into(),
            file: "a.rs".into(),
            find: find.into(),
            replace: replace.into(),
            test: "sidecore-tcp::a b".into(),
        }
    }

    #[test]
    fn a_mutation_needs_its_text_once() {
        let text = "if a {}\nif b {}\n";
        assert_eq!(
            mutation("if a", "if !a").apply(text).as_deref(),
            Ok("if !a {}\nif b {}\n")
        );
        assert!(mutation("if", "while").apply(text).is_err(), "twice");
        assert!(mutation("if c", "if d").apply(text).is_err(), "not at all");
        assert!(
            mutation("if a", "if a").apply(text).is_err(),
            "nothing changes"
        );
    }

    #[test]
    fn lists_are_read_and_bad_ones_refused() {
        let good = "[[mutation]]\nlabel = \"MUST-1\"\nfile = \"a.rs\"\nfind = \"x\"\nreplace = \"y\"\n\
            test = \"sidecore-tcp::a b\"\n[[none]]\nlabel = \"MUST-2\"\nreason = \"by type\"\n";
        let list = Mutations::parse(good).expect("a list");
        assert_eq!(list.mutations, [mutation("x", "y")]);
        assert_eq!(list.none, [("MUST-2".to_owned(), "by type".to_owned())]);
        for bad in [
            "[[mutation]]\nlabel = \"MUST-1\"\n",
            "[[none]]\nlabel = \"MUST-1\"\n",
            "[[other]]\nlabel = \"MUST-1\"\n",
            "mutation = 5\n",
            "no toml",
        ] {
            assert!(Mutations::parse(bad).is_err(), "{bad}");
        }
    }
}
