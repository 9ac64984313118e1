//! Memory to send from, until `shm` has it.
#![allow(unsafe_code, missing_docs)]
use core::marker::PhantomData;
#[derive(Clone, Copy)]
pub struct MemRef<'a> {
    ptr: *const u8,
    len: usize,
    marker: PhantomData<&'a ()>,
}
impl<'a> MemRef<'a> {
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Self {
            ptr: bytes.as_ptr(),
            len: bytes.len(),
            marker: PhantomData,
        }
    }
    pub fn len(&self) -> usize {
        self.len
    }
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr
    }
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let n = self.len.min(to.len());
        // SAFETY: both are valid for `n` bytes.
        unsafe { core::ptr::copy_nonoverlapping(self.ptr, to.as_mut_ptr(), n) };
        n
    }
}
