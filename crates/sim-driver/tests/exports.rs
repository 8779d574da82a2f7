//! The symbols that the library exports, read from the file that programs load.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// The library, which cargo builds beside the tests.
fn library() -> Vec<u8> {
    let test = std::env::current_exe().expect("a test knows its path");
    let name = "libpagewise_driver.so";
    let folders = test.ancestors().skip(1).take(3);
    let places = folders.flat_map(|folder| [folder.join(name), folder.join("deps").join(name)]);
    let found: Option<PathBuf> = places.into_iter().find(|path| path.exists());
    std::fs::read(found.expect("cargo builds the library beside its tests")).expect("readable")
}

/// A little-endian number of `bytes` bytes.
fn number(file: &[u8], at: usize, bytes: usize) -> usize {
    file[at..at + bytes].iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte))
}

/// The names of the functions that a 64-bit ELF library defines for others: those of its section of
/// type 11 (`SHT_DYNSYM`), with the section of names that it links to.
fn exported(file: &[u8]) -> BTreeSet<String> {
    assert_eq!(&file[..5], b"\x7fELF\x02");
    let (sections, size, count) =
        (number(file, 0x28, 8), number(file, 0x3a, 2), number(file, 0x3c, 2));
    let section = |index: usize| sections + index * size;
    let symbols = (0..count).map(section).find(|&at| number(file, at + 4, 4) == 11);
    let symbols = symbols.expect("a library has dynamic symbols");
    let names = number(file, section(number(file, symbols + 0x28, 4)) + 0x18, 8);
    let (first, bytes) = (number(file, symbols + 0x18, 8), number(file, symbols + 0x20, 8));
    let defined = (first..first + bytes).step_by(24).filter(|&at| {
        let is_function = number(file, at + 4, 1) & 0xf == 2;
        is_function && number(file, at + 6, 2) != 0
    });
    let name = |at: usize| {
        let text = &file[names + number(file, at, 4)..];
        let end = text.iter().position(|&byte| byte == 0).expect("names end with a NUL");
        String::from_utf8(text[..end].to_vec()).expect("names are text")
    };
    defined.map(name).collect()
}

#[test]
fn the_library_exports_every_symbol_of_the_table_and_no_other_of_the_drivers() {
    let of_the_driver = |name: &String| name.starts_with("cu");
    let exported: BTreeSet<String> =
        exported(&library()).into_iter().filter(of_the_driver).collect();
    let table: BTreeSet<String> = pagewise_driver::symbols().map(str::to_owned).collect();
    assert_eq!(exported, table);
    assert!(table.len() > 700, "{}", table.len());
}
