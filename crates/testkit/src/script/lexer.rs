//! A script's words.

use std::rc::Rc;

use super::Failure;
use super::syntax::Place;

/// A place in a text.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// The end of what was passed over last, blanks not counted.
    last: usize,
    file: Rc<str>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &str, text: &'a str) -> Self {
        let file = file.into();
        let mut cursor = Self {
            text,
            at: 0,
            last: 0,
            file,
        };
        cursor.skip();
        cursor
    }

    /// Where the next word is.
    pub(super) fn place(&self) -> Place {
        self.place_of(self.at)
    }

    fn place_of(&self, at: usize) -> Place {
        Place {
            file: Rc::clone(&self.file),
            line: 1 + self.text[..at].matches('\n').count(),
        }
    }

    /// Something is wrong at, or behind, what was passed over last.
    pub(super) fn fail<T>(&self, message: impl Into<String>) -> Result<T, Failure> {
        Err(Failure::new(&self.place_of(self.last), message))
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn is_done(&self) -> bool {
        self.rest().is_empty()
    }

    /// Passes over blanks and comments.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            let len = if trimmed.starts_with("//") || trimmed.starts_with('#') {
                trimmed.find('\n').unwrap_or(trimmed.len())
            } else if trimmed.starts_with("/*") {
                trimmed.find("*/").map_or(trimmed.len(), |end| end + 2)
            } else {
                return;
            };
            self.at += len;
        }
    }

    fn pass(&mut self, len: usize) -> &'a str {
        let passed = &self.text[self.at..self.at + len];
        self.at += len;
        self.last = self.at;
        self.skip();
        passed
    }

    /// Whether these characters come next.
    pub(super) fn sees(&self, what: &str) -> bool {
        self.rest().starts_with(what)
    }

    /// Passes over these characters, if they come next.
    pub(super) fn takes(&mut self, what: &str) -> bool {
        let found = self.sees(what);
        if found {
            self.pass(what.len());
        }
        found
    }

    pub(super) fn expects(&mut self, what: &str) -> Result<(), Failure> {
        if self.takes(what) {
            return Ok(());
        }
        let found: String = self.rest().chars().take(20).collect();
        self.fail(format!("expected {what:?}, found {found:?}"))
    }

    /// The word that comes next, not passed over; empty if there is none.
    pub(super) fn word_ahead(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        &rest[..end.unwrap_or(rest.len())]
    }

    pub(super) fn word(&mut self) -> Result<&'a str, Failure> {
        let word = self.word_ahead();
        if word.is_empty() {
            let found: String = self.rest().chars().take(20).collect();
            return self.fail(format!("expected a word, found {found:?}"));
        }
        Ok(self.pass(word.len()))
    }

    /// Passes over this word, if it comes next.
    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        let found = self.word_ahead() == word;
        if found {
            self.pass(word.len());
        }
        found
    }

    fn digits(&mut self, what: &str) -> Result<&'a str, Failure> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit());
        match &rest[..end.unwrap_or(rest.len())] {
            "" => self.fail(format!("expected {what}")),
            digits => Ok(digits),
        }
    }

    /// A number, decimal or 0x.
    pub(super) fn int(&mut self) -> Result<i64, Failure> {
        let negative = self.takes("-");
        let value = if self.sees("0x") {
            let word = self.word()?;
            i64::from_str_radix(&word[2..], 16).ok()
        } else {
            let digits = self.digits("a number")?;
            self.pass(digits.len()).parse().ok()
        };
        match value {
            Some(value) => Ok(if negative { -value } else { value }),
            None => self.fail("a number that is too large"),
        }
    }

    /// A number of at most `most`.
    pub(super) fn number<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, Failure> {
        let value = self.int()?;
        match T::try_from(value) {
            Ok(value) => Ok(value),
            Err(_) => self.fail(format!("{value} is out of range for {what}")),
        }
    }

    /// Seconds, with a fraction or without, as microseconds.
    pub(super) fn seconds(&mut self) -> Result<u64, Failure> {
        let whole = if self.sees(".") {
            ""
        } else {
            self.digits("a time")?
        };
        let rest = &self.rest()[whole.len()..];
        let fraction = rest.strip_prefix('.').map_or("", |rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit());
            &rest[..end.unwrap_or(rest.len())]
        });
        if whole.is_empty() && fraction.is_empty() {
            return self.fail("expected a time");
        }
        let len = whole.len()
            + if fraction.is_empty() {
                0
            } else {
                1 + fraction.len()
            };
        let Ok(whole) = format!("0{whole}").parse::<u64>() else {
            return self.fail("a time that is too large");
        };
        let micros = format!("{fraction:0<6}")[..6].parse::<u64>();
        self.pass(len);
        Ok(whole * 1_000_000 + micros.unwrap_or(0))
    }

    /// Everything up to a mark, and passes over the mark.
    pub(super) fn until(&mut self, mark: &str) -> Result<&'a str, Failure> {
        let Some(len) = self.rest().find(mark) else {
            return self.fail(format!("{mark:?} is missing"));
        };
        let found = &self.rest()[..len];
        self.at += len;
        self.pass(mark.len());
        Ok(found)
    }

    /// The rest of the line, whatever it is.
    pub(super) fn line(&mut self) -> &'a str {
        let rest = self.rest();
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        self.pass(line.len()).trim_end()
    }
}
