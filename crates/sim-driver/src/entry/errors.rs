//! Names and words of `CUresult`s: `data/errors.tsv`.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use pagewise_hal::Code;

use crate::driver::store;

/// The table: see `data/README.md`.
const TABLE: &str = include_str!("../../data/errors.tsv");

/// The name and the words of each number. C keeps the pointers, so every text is made once, with
/// its NUL.
fn texts() -> &'static BTreeMap<c_int, [CString; 2]> {
    static TEXTS: OnceLock<BTreeMap<c_int, [CString; 2]>> = OnceLock::new();
    TEXTS.get_or_init(|| TABLE.lines().skip(1).filter_map(parse).collect())
}

fn parse(line: &str) -> Option<(c_int, [CString; 2])> {
    let mut fields = line.split('\t');
    let code = fields.next()?.parse().ok()?;
    Some((code, [CString::new(fields.next()?).ok()?, CString::new(fields.next()?).ok()?]))
}

/// Stores a text of a `CUresult`. For a number that is none it stores null, and refuses.
///
/// # Safety
/// `text` must be null or valid for writing.
unsafe fn give(code: c_int, which: usize, text: *mut *const c_char) -> c_int {
    let found = texts().get(&code).and_then(|texts| texts.get(which));
    match found {
        // SAFETY: by this function's contract `text` is null or valid for writing. The text that is
        // stored is static, so C code may keep it.
        Some(found) => unsafe { store(text, found.as_ptr()) }.err().unwrap_or(Code::SUCCESS),
        None => {
            // SAFETY: by this function's contract `text` is null or valid for writing.
            _ = unsafe { store(text, std::ptr::null()) };
            Code::INVALID_VALUE
        }
    }
}

/// `cuGetErrorName`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give(code, 0, name) }
}

/// `cuGetErrorString`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give(code, 1, text) }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::code_name;

    use super::*;

    #[test]
    fn the_table_has_the_names_that_errors_of_the_library_have() {
        for (code, [name, words]) in texts() {
            assert_eq!(code_name(*code), name.to_str().ok(), "{code}");
            assert!(!words.is_empty());
        }
        assert_eq!(texts().len(), 101);
        assert_eq!(texts()[&1][1].as_c_str(), c"invalid argument");
    }
}
