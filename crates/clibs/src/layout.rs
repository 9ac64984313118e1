//! What C must see of sizes, offsets and numbers, as assertions in C.

/// `_Static_assert`s, a line each, of a type's size and alignment and of the places of its members.
///
/// `members!(kind: first second)`
#[macro_export]
macro_rules! members {
    ($kind:ident: $($name:ident)*) => {{
        let kind = stringify!($kind);
        let mut out = format!("_Static_assert(sizeof({kind}) == {}, \"{kind}\");\n", size_of::<$kind>());
        out += &format!("_Static_assert(_Alignof({kind}) == {}, \"{kind}\");\n", align_of::<$kind>());
        $(
            let (name, at) = (stringify!($name), ::std::mem::offset_of!($kind, $name));
            out += &format!("_Static_assert(offsetof({kind}, {name}) == {at}, \"{kind}.{name}\");\n");
        )*
        out
    }};
}

/// `_Static_assert`s, a line each, that names have these values.
///
/// `numbers!(Kind::NAME => NAME …)`
#[macro_export]
macro_rules! numbers {
    ($($value:expr => $name:ident)*) => {{
        let mut out = String::new();
        $(out += &format!("_Static_assert({0} == {1}, \"{0}\");\n", stringify!($name), $value as i64);)*
        out
    }};
}

/// The same of constants that have one name in both languages.
///
/// `constants!(FIRST SECOND)`
#[macro_export]
macro_rules! constants {
    ($($name:ident)*) => { $crate::numbers!($($name => $name)*) };
}
