//! execl(3), execle(3) and execlp(3): programs that are executed with their words as arguments, as many as there are.
//!
//! Such functions cannot be written in Rust. A few instructions put the arguments that came in registers into memory, beside those that the caller put
//! there; the rest is Rust's. What comes of it is the call with a list, which is seen as ever ([`super::images`]).

use core::arch::naked_asm;
use std::ptr::null;

use libc::{c_char, c_int};

use super::images::{execv, execve, execvp};

/// A word of the program that is executed, or the end of them.
type Word = *const c_char;

/// Arguments that come in registers.
#[cfg(target_arch = "x86_64")]
const IN_REGISTERS: usize = 6;
#[cfg(target_arch = "aarch64")]
const IN_REGISTERS: usize = 8;

/// Words for which there is room on the stack: nothing is allocated then, as after vfork it would never be freed.
const FEW: usize = 512;

/// The arguments of a call: those in registers, and those that follow on the caller's stack.
struct Arguments {
    registers: *const Word,
    stack: *const Word,
}

impl Arguments {
    /// One of them.
    ///
    /// # Safety
    ///
    /// There is one at this place, and the call is not over.
    unsafe fn at(&self, place: usize) -> Word {
        let place = match place.checked_sub(IN_REGISTERS) {
            // SAFETY: the registers were stored there.
            None => unsafe { self.registers.add(place) },
            // SAFETY: the caller's promise.
            Some(further) => unsafe { self.stack.add(further) },
        };
        // SAFETY: as above.
        unsafe { *place }
    }

    /// Makes a list of the words, and calls `execute` with the file, the list, and what follows it.
    ///
    /// # Safety
    ///
    /// As of the function whose arguments these are: a file, words, a null.
    unsafe fn collect(
        &self,
        execute: impl FnOnce(Word, *const Word, *const Word) -> c_int,
    ) -> c_int {
        // SAFETY: the caller's promise: there is a null among them.
        let count = (1..)
            .take_while(|place| unsafe { !self.at(*place).is_null() })
            .count();
        let mut few = [null(); FEW];
        let mut many = Vec::new();
        let words = if count < FEW {
            &mut few[..=count]
        } else {
            many.resize(count + 1, null());
            &mut many[..]
        };
        for (at, word) in words[..count].iter_mut().enumerate() {
            // SAFETY: before the null.
            *word = unsafe { self.at(at + 1) };
        }
        // SAFETY: the first; what follows the null is looked at by those only of whom it is an argument.
        let (file, rest) = unsafe { (self.at(0), self.place(count + 2)) };
        execute(file, words.as_ptr(), rest)
    }

    /// Where one of them is.
    fn place(&self, place: usize) -> *const Word {
        match place.checked_sub(IN_REGISTERS) {
            None => self.registers.wrapping_add(place),
            Some(further) => self.stack.wrapping_add(further),
        }
    }
}

/// # Safety
///
/// As execl's, with its arguments where the instructions put them.
unsafe extern "C-unwind" fn with_words(registers: *const Word, stack: *const Word) -> c_int {
    let arguments = Arguments { registers, stack };
    // SAFETY: the program's promise.
    unsafe { arguments.collect(|file, words, _| execv(file, words)) }
}

/// # Safety
///
/// As execlp's, with its arguments where the instructions put them.
unsafe extern "C-unwind" fn with_words_searched(
    registers: *const Word,
    stack: *const Word,
) -> c_int {
    let arguments = Arguments { registers, stack };
    // SAFETY: the program's promise.
    unsafe { arguments.collect(|file, words, _| execvp(file, words)) }
}

/// # Safety
///
/// As execle's, with its arguments where the instructions put them.
unsafe extern "C-unwind" fn with_words_and_environment(
    registers: *const Word,
    stack: *const Word,
) -> c_int {
    let arguments = Arguments { registers, stack };
    // SAFETY: the program's promise: after the null comes the environment, a list.
    unsafe { arguments.collect(|file, words, rest| execve(file, words, (*rest).cast())) }
}

macro_rules! variadic {
    ($($name:ident: $with:ident;)*) => {$(
        #[doc = concat!(stringify!($name), "(3).")]
        ///
        /// # Safety
        ///
        /// As libc's.
        // SAFETY: by the calling convention the first arguments, all of them pointers, are in these registers, and the others above the return
        // address. They are stored next to each other; the stack is aligned for the call, and as it was after it.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "sub rsp, 56",
                ".cfi_adjust_cfa_offset 56",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov rdi, rsp",
                "lea rsi, [rsp + 64]",
                "call {with}",
                "add rsp, 56",
                ".cfi_adjust_cfa_offset -56",
                "ret",
                ".cfi_endproc",
                with = sym $with,
            )
        }

        #[doc = concat!(stringify!($name), "(3).")]
        ///
        /// # Safety
        ///
        /// As libc's.
        // SAFETY: as on the other architecture; the return address is in a register, which is kept.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-80]!",
                ".cfi_def_cfa_offset 80",
                ".cfi_offset x29, -80",
                ".cfi_offset x30, -72",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x0, sp, #16",
                "add x1, sp, #80",
                "bl {with}",
                "ldp x29, x30, [sp], #80",
                "ret",
                ".cfi_endproc",
                with = sym $with,
            )
        }
    )*};
}

variadic! {
    execl: with_words;
    execlp: with_words_searched;
    execle: with_words_and_environment;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a call as it lies in memory, and what follows them.
    fn collected(arguments: &[Word]) -> (Word, Vec<Word>, Word) {
        let (registers, stack) = arguments.split_at(IN_REGISTERS.min(arguments.len()));
        let mut kept = registers.to_vec();
        kept.resize(IN_REGISTERS, null());
        let call = Arguments {
            registers: kept.as_ptr(),
            stack: stack.as_ptr(),
        };
        let mut found = None;
        let count = arguments.iter().skip(1).position(|word| word.is_null());
        let words = count.unwrap() + 1;
        // SAFETY: there is a null among them, and something after it.
        let done = unsafe {
            call.collect(|file, list, rest| {
                let list = std::slice::from_raw_parts(list, words).to_vec();
                found = Some((file, list, *rest));
                7
            })
        };
        assert_eq!(done, 7);
        found.unwrap()
    }

    #[test]
    fn words_are_found_in_registers_and_beyond() {
        for words in [0, 1, 4, 5, 6, 7, 8, 20, FEW - 2, FEW - 1, FEW, FEW + 300] {
            let name = |number: usize| number as Word;
            let mut call = vec![name(99)];
            call.extend((0..words).map(|number| name(number + 100)));
            call.extend([null(), name(7)]);
            let (file, list, rest) = collected(&call);
            assert_eq!((file, rest), (name(99), name(7)), "{words}");
            assert_eq!(list, call[1..words + 2], "{words}");
        }
    }
}
