//! The C boundary: pointers become values, values go out through pointers, panics stay inside.
//!
//! What a pointer must be is said once: null and misaligned pointers are refused; any other must point to what the header says, for
//! which the caller answers.

use std::ffi::{CStr, c_char, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use libc::{
    AF_INET, AF_INET6, AF_UNSPEC, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t,
};

use crate::status::Dusi_Status::{self, *};
use crate::status::{Failure, Outcome};

/// Runs a call: no panic leaves it, and a failure's errno is set.
#[inline]
pub(crate) fn call(act: impl FnOnce() -> Outcome) -> Dusi_Status {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => DUSI_OK,
        Ok(Err(failure)) => failed(failure),
        Err(_) => DUSI_INTERNAL,
    }
}

#[cold]
fn failed(failure: Failure) -> Dusi_Status {
    if let Some(errno) = failure.errno {
        // SAFETY: the C library's errno of this thread.
        unsafe { *libc::__errno_location() = errno };
    }
    failure.status
}

fn is_usable<T>(pointer: *const T) -> bool {
    !pointer.is_null() && pointer.is_aligned()
}

/// Room for a result, in the caller's memory.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Of a pointer, which must not be null.
    ///
    /// # Safety
    /// It is null, or points to room for a `T` for as long as the call lasts.
    pub(crate) unsafe fn new(pointer: *mut T) -> Outcome<Self> {
        if is_usable(pointer) {
            Ok(Self(pointer))
        } else {
            Err(DUSI_BAD_ARGUMENT.into())
        }
    }

    /// The same, where null says that nobody wants to know.
    ///
    /// # Safety
    /// As [`Out::new`].
    pub(crate) unsafe fn optional(pointer: *mut T) -> Outcome<Option<Self>> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: as the caller promises.
        unsafe { Self::new(pointer) }.map(Some)
    }

    #[inline]
    pub(crate) fn set(&mut self, value: T) {
        // SAFETY: room for a `T`, as promised to `new`; what was there needs no drop, being C's.
        unsafe { self.0.write(value) };
    }
}

/// Room for several results.
#[derive(Debug)]
pub(crate) struct OutArray<T> {
    first: *mut T,
    len: usize,
}

impl<T> OutArray<T> {
    /// Of a pointer and a number of elements, neither of which may be 0.
    ///
    /// # Safety
    /// The pointer is null, or points to room for `len` elements for as long as the call lasts.
    pub(crate) unsafe fn new(first: *mut T, len: usize) -> Outcome<Self> {
        if is_usable(first) && len > 0 && len <= isize::MAX as usize / size_of::<T>() {
            Ok(Self { first, len })
        } else {
            Err(DUSI_BAD_ARGUMENT.into())
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Stores an element; beyond the end nothing happens.
    #[inline]
    pub(crate) fn set(&mut self, index: usize, value: T) {
        if index < self.len {
            // SAFETY: inside, as was just seen; room as promised to `new`.
            unsafe { self.first.add(index).write(value) };
        }
    }
}

/// A copy of what a pointer points to.
///
/// # Safety
/// It is null, or points to a `T` that nobody changes during the call.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T) -> Outcome<T> {
    if !is_usable(pointer) {
        return Err(DUSI_BAD_ARGUMENT.into());
    }
    // SAFETY: usable, and a `T`, as the caller promises.
    Ok(unsafe { pointer.read() })
}

/// Elements of the caller's, for the length of the call. At least one, at most `max`.
///
/// # Safety
/// The pointer is null, or points to `len` elements that nobody changes during the call.
pub(crate) unsafe fn array<'a, T>(first: *const T, len: usize, max: usize) -> Outcome<&'a [T]> {
    if !is_usable(first) || len == 0 || len > max {
        return Err(DUSI_BAD_ARGUMENT.into());
    }
    // SAFETY: usable; so many elements, as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(first, len) })
}

/// Copies a few bytes of the caller's into `to`, whose length is the limit, and gives that part of it.
///
/// # Safety
/// The pointer is null (which is fine for no bytes), or points to `len` readable bytes.
pub(crate) unsafe fn copy_bytes(from: *const c_void, len: usize, to: &mut [u8]) -> Outcome<&[u8]> {
    let part = to.get_mut(..len).ok_or(DUSI_BAD_ARGUMENT)?;
    if len > 0 {
        if from.is_null() {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        // SAFETY: `len` bytes can be read, as the caller promises; `part` is our own.
        unsafe { std::ptr::copy_nonoverlapping(from.cast(), part.as_mut_ptr(), len) };
    }
    Ok(part)
}

/// A path; `None` for null.
///
/// # Safety
/// The pointer is null, or points to a string that ends with a zero byte.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Option<&'a Path> {
    use std::os::unix::ffi::OsStrExt;
    if text.is_null() {
        return None;
    }
    // SAFETY: a string, as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    Some(Path::new(std::ffi::OsStr::from_bytes(text.to_bytes())))
}

/// An address of AF_INET or AF_INET6.
///
/// # Safety
/// The pointer is null, or points to `len` readable bytes.
pub(crate) unsafe fn address(at: *const sockaddr, len: socklen_t) -> Outcome<SocketAddr> {
    let len = len as usize;
    let mut bytes = [0u8; size_of::<sockaddr_in6>()];
    // A longer one (sockaddr_storage) is fine; what lies behind is not looked at.
    let held = len.min(bytes.len());
    if held < size_of::<sa_family_t>() {
        return Err(DUSI_BAD_ARGUMENT.into());
    }
    // SAFETY: so many bytes can be read, as the caller promises.
    unsafe { copy_bytes(at.cast(), held, &mut bytes)? };
    let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match i32::from(word(0)) {
        AF_INET if len >= size_of::<sockaddr_in>() => {
            let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            Ok(SocketAddrV4::new(ip, port).into())
        }
        AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            let octets: [u8; 16] = std::array::from_fn(|i| bytes[8 + i]);
            let [flow, scope] = [4, 24].map(|at| [0, 1, 2, 3].map(|i| bytes[at + i]));
            let (flow, scope) = (u32::from_be_bytes(flow), u32::from_ne_bytes(scope));
            Ok(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope).into())
        }
        _ => Err(DUSI_BAD_ARGUMENT.into()),
    }
}

/// An address as C has it.
pub(crate) fn address_bytes(address: SocketAddr) -> ([u8; size_of::<sockaddr_in6>()], usize) {
    let mut bytes = [0u8; size_of::<sockaddr_in6>()];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&(AF_INET as sa_family_t).to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            (bytes, size_of::<sockaddr_in>())
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&(AF_INET6 as sa_family_t).to_ne_bytes());
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            (bytes, size_of::<sockaddr_in6>())
        }
    }
}

/// A peer; `None` for AF_UNSPEC, as connect(2) has it.
///
/// # Safety
/// As [`address`].
pub(crate) unsafe fn peer(at: *const sockaddr, len: socklen_t) -> Outcome<Option<SocketAddr>> {
    let mut family = [0u8; size_of::<sa_family_t>()];
    if len as usize >= family.len() {
        let n = family.len();
        // SAFETY: so many bytes can be read, as the caller promises.
        unsafe { copy_bytes(at.cast(), n, &mut family)? };
        if sa_family_t::from_ne_bytes(family) == AF_UNSPEC as sa_family_t {
            return Ok(None);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { address(at, len).map(Some) }
}

/// Stores an address as getsockname(2) does: as much as fits, and in `len` how long it is.
///
/// # Safety
/// `len` is null or points to a length; `to` is null or points to room for so many bytes.
pub(crate) unsafe fn put_address(
    address: SocketAddr,
    to: *mut sockaddr,
    len: *mut socklen_t,
) -> Outcome {
    // SAFETY: as the caller promises.
    let room = unsafe { read(len)? } as usize;
    if to.is_null() {
        return Err(DUSI_BAD_ARGUMENT.into());
    }
    let (bytes, whole) = address_bytes(address);
    // SAFETY: room for `room` bytes, as the caller promises; not more than that are written.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), whole.min(room));
        *len = whole as socklen_t;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &str) -> SocketAddr {
        let address: SocketAddr = text.parse().unwrap();
        let (bytes, len) = address_bytes(address);
        // SAFETY: the array's own length.
        unsafe { super::address(bytes.as_ptr().cast(), len as socklen_t) }.unwrap()
    }

    #[test]
    fn addresses_there_and_back() {
        for text in [
            "10.77.0.2:80",
            "0.0.0.0:0",
            "[2001:db8::1]:443",
            "[fe80::1%7]:9",
        ] {
            assert_eq!(round(text).to_string(), text);
        }
    }

    #[test]
    fn addresses_that_are_none() {
        let (bytes, len) = address_bytes("10.0.0.1:1".parse().unwrap());
        let ask = |bytes: &[u8], len: usize| {
            // SAFETY: no more than there are.
            unsafe { address(bytes.as_ptr().cast(), len as socklen_t) }
        };
        assert!(ask(&bytes, len - 1).is_err());
        assert!(ask(&bytes, 1).is_err());
        assert!(ask(&bytes, 0).is_err());
        let mut other = bytes;
        other[0] = libc::AF_UNIX as u8;
        assert!(ask(&other, len).is_err());
        other[0] = AF_INET6 as u8;
        assert!(ask(&other, len).is_err(), "too short for IPv6");
        // SAFETY: null is asked about.
        assert!(unsafe { address(std::ptr::null(), 16) }.is_err());
    }

    #[test]
    fn panics_stay_inside() {
        assert_eq!(call(|| panic!("as the test wants it")), DUSI_INTERNAL);
        assert_eq!(call(|| Err(DUSI_EMPTY.into())), DUSI_EMPTY);
    }

    #[test]
    fn pointers_that_are_none() {
        let mut word = [0u64; 2];
        let odd = word.as_mut_ptr().cast::<u8>().wrapping_add(1).cast::<u64>();
        for pointer in [std::ptr::null_mut(), odd] {
            // SAFETY: null or misaligned, which is what is asked about.
            unsafe {
                assert!(Out::new(pointer).is_err());
                assert!(read(pointer).is_err());
                assert!(array(pointer, 1, 8).is_err());
                assert!(OutArray::new(pointer, 1).is_err());
            }
        }
        // SAFETY: two words are there.
        unsafe {
            assert!(array(word.as_ptr(), 0, 8).is_err());
            assert!(array(word.as_ptr(), 9, 8).is_err());
            assert!(OutArray::new(word.as_mut_ptr(), usize::MAX).is_err());
            let mut out = OutArray::new(word.as_mut_ptr(), 1).unwrap();
            out.set(0, 7);
            out.set(1, 8);
            assert_eq!(out.len(), 1);
        }
        assert_eq!(word, [7, 0]);
    }
}
