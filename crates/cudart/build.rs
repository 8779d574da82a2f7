//! Generates the functions that only forward, and the lists of exported symbols, from the tables in
//! `data/`.
//!
//! A function is implemented if a source file defines an `extern "C"` function of its name, or if
//! `data/forwards.tsv` has it. For each release the macro `exports_12` or `exports_13` defines every
//! symbol: one that calls the implemented function, or one that refuses. Calls of implemented
//! functions compare their parameters with the table when the macro is used.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// One row of `data/symbols.tsv`.
struct Row<'a> {
    major: &'a str,
    symbol: &'a str,
    form: &'a str,
    per_thread: bool,
    returns: &'a str,
    parameters: Vec<&'a str>,
}

impl Row<'_> {
    fn parse(line: &str) -> Row<'_> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [major, symbol, form, stream, returns, parameters] = fields[..] else {
            panic!("data/symbols.tsv: a row has six fields, unlike {line:?}");
        };
        Row {
            major,
            symbol,
            form,
            per_thread: stream == "per-thread",
            returns,
            parameters: parameters.split(", ").filter(|one| !one.is_empty()).collect(),
        }
    }

    /// The parameters in Rust: `a0: usize, a1: …`.
    fn declared(&self) -> String {
        let types = self.parameters.iter().enumerate();
        let all: Vec<String> =
            types.map(|(index, c)| format!("a{index}: {}", rust_type(c))).collect();
        all.join(", ")
    }
}

/// The Rust type of a C type; pointers and handles have no other type than `*mut c_void`.
fn rust_type(c: &str) -> &'static str {
    match c {
        _ if c.contains('*') => "*mut ::core::ffi::c_void",
        "void" => "()",
        "char" => "::core::ffi::c_char",
        "size_t" => "usize",
        "unsigned int" => "u32",
        "unsigned long long" | "cudaTextureObject_t" | "cudaSurfaceObject_t" => "u64",
        "dim3" => "$crate::Dim3",
        "cudaExtent" => "$crate::Extent",
        "cudaPitchedPtr" => "$crate::PitchedPtr",
        "cudaMemLocation" => "$crate::MemLocation",
        "cudaIpcMemHandle_t" | "cudaIpcEventHandle_t" => "$crate::IpcHandle",
        "cudaChannelFormatDesc" => "$crate::ChannelFormat",
        "cudaError_t" => "::core::ffi::c_int",
        "cudaAsyncCallback" | "cudaLogsCallback_t" | "cudaLogsCallbackHandle" => {
            "*mut ::core::ffi::c_void"
        }
        // Handles and functions.
        _ if c.ends_with("_t") => "*mut ::core::ffi::c_void",
        // Ordinals and enumerations.
        _ => "::core::ffi::c_int",
    }
}

/// The names of the `extern "C"` functions that the sources of a folder define.
fn implemented(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the sources are readable") {
        let path = entry.expect("the sources are readable").path();
        let text = fs::read_to_string(path).expect("sources are text");
        let functions = text.split("extern \"C\" fn ").skip(1);
        found.extend(
            functions.map(|rest| rest.split(['(', '<']).next().unwrap_or_default().to_owned()),
        );
    }
    found
}

/// A function that calls the driver's function with the same parameters.
fn forwarding(row: &Row<'_>, driver: &str, since: &str) -> String {
    let declared = row.declared().replace("$crate", "crate");
    let arguments: String = (0..row.parameters.len()).map(|index| format!(", a{index}")).collect();
    let form = row.form;
    format!(
        "/// Calls the driver's `{driver}` with the same arguments.\n\
         pub unsafe extern \"C\" fn {form}({declared}) -> core::ffi::c_int {{\n    \
         // SAFETY: the caller promises of the arguments what the driver's function asks for.\n    \
         with_context(|| unsafe {{ cu!({driver:?} @ {since}{arguments}) }})\n}}\n"
    )
}

/// An exported function that calls an implemented one.
fn exported(row: &Row<'_>) -> String {
    let arguments: Vec<String> = row.parameters.iter().enumerate().map(argument).collect();
    let Row { symbol, form, returns, .. } = row;
    let cast = if returns.contains('*') { ".cast_mut().cast()" } else { "" };
    let mut call = format!("$crate::{form}({})", arguments.join(", "));
    if row.per_thread {
        call = format!("$crate::per_thread(|| {call})");
    }
    let returns = rust_type(returns);
    format!(
        "#[unsafe(no_mangle)] pub unsafe extern \"C\" fn {symbol}({}) -> {returns} {{\n    \
         // SAFETY: the caller promises of the arguments what it promises the form that is called.\n    \
         unsafe {{ {call}{cast} }}\n}}\n",
        row.declared()
    )
}

/// An argument as it is passed on.
fn argument((index, c): (usize, &&str)) -> String {
    let cast = if rust_type(c).starts_with('*') { ".cast()" } else { "" };
    format!("a{index}{cast}")
}

/// An exported function that refuses. It has no parameters: on the systems that CUDA supports the
/// caller passes and removes its arguments whether or not the function reads them.
fn refusing(symbol: &str) -> String {
    format!(
        "#[unsafe(no_mangle)] pub extern \"C\" fn {symbol}() -> ::core::ffi::c_int {{ \
         $crate::refuse({symbol:?}) }}\n"
    )
}

/// The table of errors as a Rust array: code, name and words.
fn errors() -> String {
    let table = fs::read_to_string("data/errors.tsv").expect("data/errors.tsv is readable");
    let mut rows = String::from("&[\n");
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [code, name, words] = fields[..] else { panic!("data/errors.tsv: {line:?}") };
        writeln!(rows, "    ({code}, c{name:?}, c{words:?}),").expect("text has room");
    }
    rows + "]\n"
}

/// The table of device properties as a Rust array.
fn properties() -> String {
    let table = fs::read_to_string("data/properties.tsv").expect("data/properties.tsv is readable");
    let mut rows = String::from("&[\n");
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [_, at_12, at_13, bytes, attributes] = fields[..] else {
            panic!("data/properties.tsv: {line:?}")
        };
        // The name, the id and the memory are no attributes.
        if attributes.starts_with(char::is_alphabetic) || attributes == "-" {
            continue;
        }
        let place =
            |at: &str| at.parse::<usize>().map_or("None".into(), |at| format!("Some({at})"));
        writeln!(
            rows,
            "    Property {{ at: [{}, {}], bytes: {bytes}, attributes: &[{attributes}] }},",
            place(at_12),
            place(at_13)
        )
        .expect("text has room");
    }
    rows + "]\n"
}

fn main() {
    println!("cargo::rerun-if-changed=data");
    println!("cargo::rerun-if-changed=src");
    let table = fs::read_to_string("data/symbols.tsv").expect("data/symbols.tsv is readable");
    let rows: Vec<Row<'_>> = table.lines().skip(1).map(Row::parse).collect();
    let forwards = fs::read_to_string("data/forwards.tsv").expect("data/forwards.tsv is readable");
    let mut functions = implemented(Path::new("src"));
    // The newest release's row of each function.
    let by_form: BTreeMap<&str, &Row<'_>> = rows.iter().map(|row| (row.form, row)).collect();
    let mut forwarded = String::new();
    for line in forwards.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [form, driver, since] = fields[..] else { panic!("data/forwards.tsv: {line:?}") };
        let row = by_form.get(form).unwrap_or_else(|| panic!("no release has {form}"));
        assert!(functions.insert(form.to_owned()), "{form} is in a source file too");
        forwarded += &forwarding(row, driver, since);
    }
    let mut exports = String::new();
    for major in ["12", "13"] {
        writeln!(
            exports,
            "/// Defines every symbol of release {major}, for a library that exports them.\n\
             #[macro_export]\nmacro_rules! exports_{major} {{ () => {{"
        )
        .expect("text has room");
        for row in rows.iter().filter(|row| row.major == major) {
            let answers = functions.contains(row.form);
            exports += &if answers { exported(row) } else { refusing(row.symbol) };
        }
        exports += "}; }\n";
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (file, text) in [
        ("exports.rs", exports),
        ("forwards.rs", forwarded),
        ("errors.rs", errors()),
        ("properties.rs", properties()),
    ] {
        fs::write(folder.join(file), text).expect("OUT_DIR is writable");
    }
}
