//! Modules, libraries, functions, occupancy and launches, compared with what an H200 answered:
//! `data/programs.tsv`. The calls are made in the order of the recording.

mod common;

use std::ffi::{CString, c_int, c_void};
use std::ptr::{null, null_mut};

use common::{PTX, function_of, module_of, start};
use pagewise_driver::*;

const ROWS: &str = include_str!("data/programs.tsv");

/// The answer of a call that has a place for a result, in the notation of the recording.
fn with_result(code: c_int, result: impl ToString) -> String {
    let result = if code == 0 { result.to_string() } else { "None".to_owned() };
    format!("({code}, {result})")
}

fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// The images of the recording, by name.
fn image(name: &str) -> Vec<u8> {
    let patch = |from: &str, to: &str| PTX.replace(from, to);
    let text = match name {
        "good" => PTX.to_owned(),
        "empty" => String::new(),
        "junk" => "junk that is no image at all, but text".to_owned(),
        "no version" => patch(".version 7.0\n", ""),
        "version 99.9" => patch("7.0", "99.9"),
        "version 1.0" => patch("7.0", "1.0"),
        "target sm_999" => patch("sm_52", "sm_999"),
        "target sm_100" => patch("sm_52", "sm_100").replace("7.0", "8.6"),
        "no target" => patch(".target sm_52\n", ""),
        "address size 32" => patch("size 64", "size 32"),
        "syntax" => patch("{ ret; }", "{ ret }"),
        "truncated" => PTX[..300].to_owned(),
        "unknown instruction" => patch("ret;", "frobnicate;"),
        "no kernels" => ".version 7.0\n.target sm_52\n.address_size 64\n\n".to_owned(),
        "leading blank" => format!("\n  \n{PTX}"),
        "leading comment" => format!("// comment\n{PTX}"),
        "crlf" => patch("\n", "\r\n"),
        "undefined extern" => {
            let text = ".extern .global .u32 elsewhere;\n.visible .entry empty";
            patch(".visible .entry empty", text)
        }
        "zeros" => "\0".repeat(64),
        "elf magic" => format!("\x7FELF{}", "\0".repeat(200)),
        "binary junk" => {
            return (1..200).chain([0]).collect();
        }
        "fatbin magic" => {
            let mut bytes = vec![0; 80];
            bytes[..8].copy_from_slice(&[0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0]);
            return bytes;
        }
        _ => panic!("{name}"),
    };
    format!("{text}\0").into_bytes()
}

fn load_module(name: &str) -> String {
    let (mut module, image) = (null_mut(), image(name));
    // SAFETY: the place is a local, and the image is whole or NUL-terminated text.
    let code = unsafe { cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
    format!("({code}, {})", truth(!module.is_null()))
}

fn load_library(image: &[u8]) -> (c_int, *mut c_void) {
    let (mut library, none) = (null_mut(), null_mut());
    // SAFETY: the place is a local, and the image is whole or NUL-terminated text.
    let code = unsafe {
        let image = image.as_ptr().cast();
        cuLibraryLoadData(&raw mut library, image, null(), none, 0, null(), none, 0)
    };
    (code, library)
}

fn library_and_kernel(name: &str) -> String {
    let (code, library) = load_library(&image(name));
    let mut kernel = null_mut();
    // SAFETY: the place is a local, and the name is NUL-terminated.
    let found = unsafe { cuLibraryGetKernel(&raw mut kernel, library, c"empty".as_ptr()) };
    format!("({code}, {}, {found})", truth(!library.is_null()))
}

/// A question about a function.
fn ask(function: *mut c_void, module: *mut c_void, what: &[&str]) -> String {
    let number = |index: usize| what[index].parse::<i64>().expect("the row has a number");
    let (mut value, mut other) = (0, 0);
    let (mut offset, mut size) = (0, 0);
    // SAFETY: all places are locals that outlive the calls.
    unsafe {
        match what[0] {
            "attribute" => {
                let code = cuFuncGetAttribute(&raw mut value, number(1) as c_int, function);
                with_result(code, value)
            }
            "parameter" => {
                let (index, places) = (number(1) as usize, (&raw mut offset, &raw mut size));
                match cuFuncGetParamInfo(function, index, places.0, places.1) {
                    0 => format!("(0, {offset}, {size})"),
                    code => code.to_string(),
                }
            }
            "name" => {
                let mut name = null();
                let code = cuFuncGetName(&raw mut name, function);
                let name = std::ffi::CStr::from_ptr(name).to_str().expect("names are UTF-8");
                with_result(code, format!("b'{name}'"))
            }
            "module" => {
                let mut found = null_mut();
                let code = cuFuncGetModule(&raw mut found, function);
                with_result(code, truth(found == module))
            }
            "occupancy" => {
                let (threads, shared) = (number(1) as c_int, number(2) as usize);
                let code = cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    &raw mut value,
                    function,
                    threads,
                    shared,
                );
                with_result(code, value)
            }
            "best" => {
                let (grid, block) = (&raw mut value, &raw mut other);
                let code = cuOccupancyMaxPotentialBlockSize(grid, block, function, None, 0, 0);
                format!("({code}, {value}, {other})")
            }
            "available" => {
                let (blocks, threads) = (number(2) as c_int, number(3) as c_int);
                let place = &raw mut size;
                let code =
                    cuOccupancyAvailableDynamicSMemPerBlock(place, function, blocks, threads);
                format!("({code}, {size})")
            }
            _ => panic!("{what:?}"),
        }
    }
}

/// The functions that a recording asks about, in one module.
struct Asked {
    module: *mut c_void,
    other: *mut c_void,
}

impl Asked {
    fn answer(&self, what: &str) -> Option<String> {
        let words: Vec<&str> = what.split(' ').collect();
        const KERNELS: [&str; 6] = ["empty", "two", "aligned", "bounded", "required", "shares"];
        Some(match words[..] {
            [kernel, "module"] if KERNELS.contains(&kernel) => {
                ask(function_of(self.module, kernel), self.module, &words[1..])
            }
            ["module", ..] => load_module(what.strip_prefix("module ")?),
            ["library", "file" | "global" | "managed" | "unload", ..] => return None,
            ["library", ..] => library_and_kernel(what.strip_prefix("library ")?),
            [kernel, ref what @ ..] if KERNELS.contains(&kernel) => {
                ask(function_of(self.module, kernel), self.module, what)
            }
            ["set", _, attribute, _, value] => {
                let (attribute, value) = (attribute.parse().ok()?, value.parse().ok()?);
                let function = function_of(self.module, "empty");
                cuFuncSetAttribute(function, attribute, value).to_string()
            }
            ["cache", _, config] => {
                let function = function_of(self.module, "empty");
                cuFuncSetCacheConfig(function, config.parse().ok()?).to_string()
            }
            ["global", name] => {
                let (mut ptr, mut bytes) = (0, 0);
                let name = CString::new(name).ok()?;
                let (ptr, place) = (&raw mut ptr, &raw mut bytes);
                // SAFETY: the places are locals, and the name is NUL-terminated.
                let code = unsafe { cuModuleGetGlobal_v2(ptr, place, self.module, name.as_ptr()) };
                with_result(code, bytes)
            }
            ["launch", ..] => self.launch(what.strip_prefix("launch ")?),
            _ => return None,
        })
    }

    /// A launch. Kernels that passed the checks are not executed, which is the one difference.
    fn launch(&self, what: &str) -> String {
        let (mut kernel, mut grid, mut block, mut shared) = ("empty", [1; 3], [1; 3], 0);
        let (mut buffer, mut bytes) = ([0_u8; 64], 12_usize);
        let (mut extra, mut parameters) = (false, false);
        match what {
            "plain" => {}
            "grid 0" => grid[0] = 0,
            "grid y 0" => grid[1] = 0,
            "block 0" => block[0] = 0,
            "block 1024" => block[0] = 1024,
            "block 1025" => block[0] = 1025,
            "block 32 32 2" => block = [32, 32, 2],
            "block z 64" => block[2] = 64,
            "block z 65" => block[2] = 65,
            "grid y 65535" => grid[1] = 65535,
            "grid y 65536" => grid[1] = 65536,
            "grid z 65536" => grid[2] = 65536,
            "grid x 2^31" => grid[0] = 1 << 31,
            "shared 49152" => shared = 49152,
            "shared 49153" => shared = 49153,
            "shared 48 KiB + 1024 static" => (kernel, shared) = ("shares", 49152),
            "shared 47 KiB + 1024 static" => (kernel, shared) = ("shares", 48128),
            "maxntid kept" => (kernel, block) = ("bounded", [64, 2, 1]),
            "maxntid passed" => (kernel, block) = ("bounded", [65, 2, 1]),
            "maxntid other shape" => (kernel, block[0]) = ("bounded", 128),
            "reqntid kept" => (kernel, block[0]) = ("required", 32),
            "reqntid passed" => (kernel, block[0]) = ("required", 16),
            "parameters missing" => kernel = "two",
            "null function" => kernel = "",
            "extra" => (kernel, extra) = ("two", true),
            "extra too short" => (kernel, extra, bytes) = ("two", true, 8),
            "extra too long" => (kernel, extra, bytes) = ("two", true, 64),
            "both forms" => (kernel, extra, parameters) = ("two", true, true),
            "params" => (kernel, parameters) = ("two", true),
            _ => panic!("{what}"),
        }
        let function = if kernel.is_empty() { null_mut() } else { function_of(self.other, kernel) };
        let place = buffer.as_mut_ptr().cast::<c_void>();
        let mut each = [place; 2];
        let names = [1_usize, 2].map(std::ptr::without_provenance_mut::<c_void>);
        let mut all = [names[0], place, names[1], (&raw mut bytes).cast(), null_mut()];
        let each = if parameters { each.as_mut_ptr() } else { null_mut() };
        let all = if extra { all.as_mut_ptr() } else { null_mut() };
        let ([x, y, z], [u, v, w]) = (grid, block);
        // SAFETY: the arrays are null or those of the kernel's parameters, which it does not use.
        let code =
            unsafe { cuLaunchKernel(function, x, y, z, u, v, w, shared, null_mut(), each, all) };
        format!("({}, 0)", if code == 801 { 0 } else { code })
    }
}

#[test]
fn every_recorded_answer_is_given() {
    start();
    let asked = Asked { module: module_of(PTX), other: module_of(PTX) };
    let (mut compared, mut wrong) = (0, Vec::new());
    for row in ROWS.lines().skip(1) {
        let (what, expected) = row.split_once('\t').expect("a row has two fields");
        let Some(answer) = asked.answer(what) else { continue };
        compared += 1;
        if answer != expected {
            wrong.push(format!("{what}: {answer}, not {expected}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(compared > 780, "only {compared} rows were compared");
}
