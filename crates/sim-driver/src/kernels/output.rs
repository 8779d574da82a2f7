//! The output of kernels: text of `printf` waits until the program waits for the device.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use pagewise_sim::KernelOutput;

/// The output of a driver's kernels: text, and values of conditions.
#[derive(Debug, Default)]
pub(crate) struct Output {
    text: Mutex<Vec<u8>>,
    /// The values of conditional handles of graphs.
    conditions: Mutex<BTreeMap<u64, u32>>,
}

impl KernelOutput for Output {
    fn print(&self, text: &[u8]) {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(text);
    }

    fn set_condition(&self, handle: u64, value: u32) {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, value);
    }

    /// A failed assertion, which a driver writes at once.
    fn warn(&self, message: &str) {
        eprint!("{message}");
    }
}

impl Output {
    /// The value of a conditional handle; 0 if nothing set it.
    pub(crate) fn condition(&self, handle: u64) -> u32 {
        let conditions = self.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        conditions.get(&handle).copied().unwrap_or_default()
    }

    /// Writes what waits to the standard output of C, in which the program's own text may wait.
    pub(crate) fn flush(&self) {
        let text = std::mem::take(&mut *self.text.lock().unwrap_or_else(PoisonError::into_inner));
        if text.is_empty() {
            return;
        }
        unsafe extern "C" {
            fn printf(format: *const std::ffi::c_char, ...) -> c_int;
            fn putchar(character: c_int) -> c_int;
        }
        for part in parts(&text) {
            let bytes = c_int::try_from(part.len()).unwrap_or(c_int::MAX);
            // SAFETY: the format takes a length and as many bytes, which `part` has.
            unsafe { printf(c"%.*s".as_ptr(), bytes, part.as_ptr()) };
            if part.ends_with(&[0]) {
                // SAFETY: it takes any character.
                unsafe { putchar(0) };
            }
        }
    }
}

/// The parts of a text that are written at a time. `%s` ends at a NUL, so each is the last byte of its part.
fn parts(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == 0).flat_map(|line| line.chunks(PART))
}

/// Bytes that are written at a time.
const PART: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_whole_and_each_nul_ends_a_part() {
        let parts_of = |text: &'static [u8]| parts(text).collect::<Vec<_>>();
        assert_eq!(parts_of(b"[\0][A]\n"), [&b"[\0"[..], b"][A]\n"]);
        assert_eq!(parts_of(b"\0\0end"), [&b"\0"[..], b"\0", b"end"]);
        let long = vec![b'x'; PART + 5];
        assert_eq!(parts(&long).map(<[u8]>::len).collect::<Vec<_>>(), [PART, 5]);
    }
}
