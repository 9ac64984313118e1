//! Status codes that the server answers with (RFC 9110, section 15).

/// A status code and its reason phrase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub u16);

impl Status {
    /// 200.
    pub const OK: Self = Self(200);
    /// 206: the answer to a satisfiable Range.
    pub const PARTIAL_CONTENT: Self = Self(206);
    /// 301: a directory without its slash.
    pub const MOVED_PERMANENTLY: Self = Self(301);
    /// 304: the client's copy is still good.
    pub const NOT_MODIFIED: Self = Self(304);
    /// 400.
    pub const BAD_REQUEST: Self = Self(400);
    /// 403: outside the root, unreadable, or not a regular file.
    pub const FORBIDDEN: Self = Self(403);
    /// 404.
    pub const NOT_FOUND: Self = Self(404);
    /// 405: neither GET nor HEAD.
    pub const METHOD_NOT_ALLOWED: Self = Self(405);
    /// 412: If-Match or If-Unmodified-Since does not hold.
    pub const PRECONDITION_FAILED: Self = Self(412);
    /// 414: the request line alone is over the limit.
    pub const URI_TOO_LONG: Self = Self(414);
    /// 416: no range lies in the file.
    pub const RANGE_NOT_SATISFIABLE: Self = Self(416);
    /// 431: the request head is over the limit.
    pub const HEAD_TOO_LARGE: Self = Self(431);
    /// 500: the file could not be read.
    pub const INTERNAL_ERROR: Self = Self(500);
    /// 501: an unknown method.
    pub const NOT_IMPLEMENTED: Self = Self(501);
    /// 503: out of descriptors or memory for now.
    pub const UNAVAILABLE: Self = Self(503);
    /// 505: neither HTTP/1.0 nor HTTP/1.1.
    pub const VERSION_NOT_SUPPORTED: Self = Self(505);

    /// The status line's code and phrase, for example `404 Not Found`.
    pub const fn text(self) -> &'static str {
        match self.0 {
            200 => "200 OK",
            206 => "206 Partial Content",
            301 => "301 Moved Permanently",
            304 => "304 Not Modified",
            400 => "400 Bad Request",
            403 => "403 Forbidden",
            404 => "404 Not Found",
            405 => "405 Method Not Allowed",
            412 => "412 Precondition Failed",
            414 => "414 URI Too Long",
            416 => "416 Range Not Satisfiable",
            431 => "431 Request Header Fields Too Large",
            501 => "501 Not Implemented",
            503 => "503 Service Unavailable",
            505 => "505 HTTP Version Not Supported",
            _ => "500 Internal Server Error",
        }
    }
}
