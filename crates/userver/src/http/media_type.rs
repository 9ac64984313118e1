//! Content types by file name.

use std::path::Path;

/// The value of Content-Type for a file of this name. Text says that it is UTF-8; an unknown extension is a stream of octets.
pub fn of(path: &Path) -> &'static str {
    let Some(guess) = mime_guess::from_path(path).first_raw() else {
        return "application/octet-stream";
    };
    match guess {
        "text/html" => "text/html; charset=utf-8",
        "text/plain" => "text/plain; charset=utf-8",
        "text/css" => "text/css; charset=utf-8",
        "text/javascript" | "application/javascript" => "text/javascript; charset=utf-8",
        "text/markdown" => "text/markdown; charset=utf-8",
        "text/csv" => "text/csv; charset=utf-8",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_extension() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.HTM", "text/html; charset=utf-8"),
            ("d/a.js", "text/javascript; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.png", "image/png"),
            ("a.svg", "image/svg+xml"),
            ("a.json", "application/json"),
            ("a.wasm", "application/wasm"),
            ("a.tar.gz", "application/gzip"),
            ("README", "application/octet-stream"),
            ("a.unheard-of", "application/octet-stream"),
        ] {
            assert_eq!(of(Path::new(name)), expected, "{name}");
        }
    }
}
