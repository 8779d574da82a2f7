//! Generates the entry points that the sources leave out, and the list of all, from
//! `data/symbols.tsv`.
//!
//! An entry point is implemented if a source file defines an `extern "C"` function of its name.
//! Each other one becomes a function that refuses (`refused.rs`). A per-thread form of an
//! implemented function becomes a function that calls it with the per-thread stream in place of the
//! null stream (`per_thread.rs`). The parameters of implemented functions are compared with the
//! table when the crate is built: their number and their sizes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// One row of the table.
struct Row<'a> {
    symbol: &'a str,
    name: &'a str,
    since: u32,
    per_thread: bool,
    parameters: Vec<&'a str>,
}

impl Row<'_> {
    fn parse(line: &str) -> Row<'_> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [symbol, name, since, stream, parameters] = fields[..] else {
            panic!("data/symbols.tsv: a row has five fields, unlike {line:?}");
        };
        Row {
            symbol,
            name,
            since: since.parse().expect("a version is a number"),
            per_thread: stream == "per-thread",
            parameters: parameters.split(", ").filter(|one| !one.is_empty()).collect(),
        }
    }

    /// The symbol of the form with the legacy default stream.
    fn legacy(&self) -> &str {
        let symbol = self.symbol;
        symbol.strip_suffix("_ptsz").or(symbol.strip_suffix("_ptds")).unwrap_or(symbol)
    }
}

/// The Rust type of a C type, and its size in bytes on the systems that CUDA 12 supports.
fn rust_type(c: &str) -> (&'static str, usize) {
    match c {
        _ if c.contains('*') => ("*mut core::ffi::c_void", 8),
        "size_t" => ("usize", 8),
        "CUdeviceptr" | "cuuint64_t" | "unsigned long long" | "CUmemGenericAllocationHandle" => {
            ("u64", 8)
        }
        "unsigned int" | "unsigned" | "cuuint32_t" => ("u32", 4),
        "unsigned short" => ("u16", 2),
        "unsigned char" => ("u8", 1),
        "CUmemLocation" => ("crate::MemLocation", 8),
        "CUipcMemHandle" | "CUipcEventHandle" => ("crate::Blob", 64),
        "CUhostFn" => ("crate::HostFunction", 8),
        "CUoccupancyB2DSize" => ("crate::BlockToDynamicShared", 8),
        "CUstreamCallback" => ("crate::StreamCallback", 8),
        "CUstream" | "CUevent" | "CUcontext" | "CUmodule" | "CUfunction" | "CUmemoryPool"
        | "CUarray" | "CUlinkState" | "CUgraph" | "CUgraphNode" | "CUgraphExec" | "CUlibrary"
        | "CUkernel" | "CUuserObject" => ("*mut core::ffi::c_void", 8),
        // Ordinals and enumerations.
        _ => ("core::ffi::c_int", 4),
    }
}

/// The names of the `extern "C"` functions that the sources of a folder define.
fn implemented(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the sources are readable") {
        let path = entry.expect("the sources are readable").path();
        if path.is_dir() {
            implemented(&path, found);
        } else {
            let text = fs::read_to_string(&path).expect("sources are text");
            let functions = text.split("extern \"C\" fn ").skip(1);
            let name = |rest: &str| rest.split(['(', '<']).next().unwrap_or_default().to_owned();
            found.extend(functions.map(name));
        }
    }
}

/// A function that refuses. It has no parameters: on the systems that CUDA supports the caller
/// passes and removes its arguments whether or not the function reads them.
fn refusing(symbol: &str) -> String {
    format!(
        "#[unsafe(no_mangle)]\npub(crate) extern \"C\" fn {symbol}() -> core::ffi::c_int {{\n    \
         refuse({symbol:?})\n}}\n"
    )
}

/// A function that calls the form with the legacy default stream.
fn forwarding(row: &Row<'_>) -> String {
    let numbered = || row.parameters.iter().enumerate();
    let parameters: Vec<String> =
        numbered().map(|(index, c)| format!("a{index}: {}", rust_type(c).0)).collect();
    let arguments: Vec<String> = numbered()
        .map(|(index, c)| match rust_type(c).0 {
            _ if *c == "CUstream" => format!("per_thread(a{index})"),
            rust if rust.starts_with('*') => format!("a{index}.cast()"),
            _ => format!("a{index}"),
        })
        .collect();
    format!(
        "#[unsafe(no_mangle)]\npub(crate) unsafe extern \"C\" fn {}({}) -> core::ffi::c_int {{\n    \
         // SAFETY: the caller promises of the arguments what it promises the form that is called.\n    \
         unsafe {{ crate::{}({}) }}\n}}\n",
        row.symbol,
        parameters.join(", "),
        row.legacy(),
        arguments.join(", ")
    )
}

/// A check of an implemented function's parameters, at compile time.
fn checked(row: &Row<'_>) -> String {
    let sizes: Vec<usize> = row.parameters.iter().map(|c| rust_type(c).1).collect();
    let count = sizes.len();
    let (symbol, sizes) = (row.symbol, format!("{sizes:?}"));
    format!("const _: () = same(&sizes_of_{count}(crate::{symbol}), &{sizes});\n")
}

fn main() {
    println!("cargo::rerun-if-changed=data/symbols.tsv");
    println!("cargo::rerun-if-changed=src");
    let table = fs::read_to_string("data/symbols.tsv").expect("data/symbols.tsv is readable");
    let mut functions = BTreeSet::new();
    implemented(Path::new("src"), &mut functions);
    let (mut forms, mut refused, mut per_thread, mut checks) =
        (String::from("&[\n"), String::new(), String::new(), String::new());
    for row in table.lines().skip(1).map(Row::parse) {
        let module = if functions.contains(row.symbol) {
            checks += &checked(&row);
            "crate"
        } else if row.per_thread && functions.contains(row.legacy()) {
            per_thread += &forwarding(&row);
            "crate::per_thread"
        } else {
            refused += &refusing(row.symbol);
            "crate::refused"
        };
        let Row { symbol, name, since, per_thread, .. } = row;
        let answers = module != "crate::refused";
        writeln!(
            forms,
            "    Form {{ name: c{name:?}, since: {since}, symbol: {symbol:?}, \
             per_thread: {per_thread}, answers: {answers}, \
             address: || {module}::{symbol} as *const () }},"
        )
        .expect("text has room");
    }
    forms += "]\n";
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (file, text) in [
        ("forms.rs", forms),
        ("refused.rs", refused),
        ("per_thread.rs", per_thread),
        ("checks.rs", checks),
    ] {
        fs::write(folder.join(file), text).expect("OUT_DIR is writable");
    }
}
