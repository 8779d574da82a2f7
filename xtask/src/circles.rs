//! The circles between files of a crate: files that import each other in a loop of any length.
//!
//! A file imports another if it names an item of it. A re-export counts as the item itself: the
//! arrow runs to the file that defines it. Tests, and modules that only tests have, do not count.

mod graph;
mod names;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::Outcome;
use crate::files::{files, text_of};
use graph::Graph;
use names::Source;

/// Folders with a `src` of their own, besides those in `crates`.
const OTHERS: &[&str] = &["fuzz", "xtask"];

/// No crate has a circle.
pub(crate) fn check() -> Outcome {
    let mut found = Vec::new();
    let mut files = 0;
    for folder in crates()? {
        let sources = sources(&folder)?;
        files += sources.len();
        let graph = Graph::new(&sources);
        found.extend(graph.circles().iter().map(|circle| format!("{circle}")));
    }
    if found.is_empty() {
        println!("{files} files, no circle");
        return Ok(());
    }
    Err(format!("{} circles of files:\n{}", found.len(), found.join("\n")))
}

/// The folders with sources of each crate.
fn crates() -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir("crates").map_err(|error| format!("crates: {error}"))?;
    let mut found: Vec<_> = entries.flatten().map(|entry| entry.path().join("src")).collect();
    found.extend(OTHERS.iter().map(|folder| Path::new(folder).join("src")));
    found.sort();
    Ok(found)
}

/// Every module of a crate that has a file, by its path: empty for the crate's root.
fn sources(folder: &Path) -> Outcome<BTreeMap<Vec<String>, Source>> {
    let mut found = BTreeMap::new();
    for path in files(folder, "rs")? {
        let source = Source::parse(&path, &text_of(&path)?)?;
        found.insert(module_of(path.strip_prefix(folder).unwrap_or(&path)), source);
    }
    names::leave_out_tests(&mut found);
    Ok(found)
}

/// The module that a file is, by its path below `src`.
fn module_of(path: &Path) -> Vec<String> {
    let parts = path.with_extension("");
    let mut module: Vec<String> =
        parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles in a crate of these files: a module's path and its text.
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let mut sources = BTreeMap::new();
        for (module, text) in files {
            let path: Vec<String> =
                module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
            sources.insert(path, Source::parse(Path::new(module), text).expect("it parses"));
        }
        names::leave_out_tests(&mut sources);
        Graph::new(&sources).circles().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_that_import_each_other_are_a_circle_with_the_names_that_tie_it() {
        let found = circles(&[
            ("a", "use crate::b::B; struct A(B);"),
            ("b", "use crate::c::C; struct B(C);"),
            ("c", "fn f(a: super::a::A) {} struct C;"),
            ("d", "use crate::a::A; struct D(A);"),
        ]);
        assert_eq!(found, ["  a -> b: B\n  b -> c: C\n  c -> a: A\n"]);
    }

    #[test]
    fn a_re_export_stands_for_the_file_that_defines_the_item() {
        let face = ("", "mod a; mod b; pub(crate) use a::A; pub use b::*;");
        let below = [face, ("a", "use super::B; pub struct A(B);"), ("b", "pub struct B;")];
        assert_eq!(circles(&below), [""; 0], "a face that hands names on needs none of them");
        let loop_of =
            [face, ("a", "use super::B; pub struct A(B);"), ("b", "pub struct B(crate::A);")];
        assert_eq!(circles(&loop_of), ["  a -> b: B\n  b -> a: A\n"]);
    }

    #[test]
    fn a_child_and_its_parent_are_two_files() {
        let parent = "mod child; use child::run; fn limit() {}";
        let found = circles(&[("m", parent), ("m::child", "fn run() { super::limit() }")]);
        assert_eq!(found, ["  m -> m::child: run\n  m::child -> m: limit\n"]);
    }

    #[test]
    fn what_a_macro_mentions_counts() {
        let found = circles(&[
            ("a", "fn f() -> String { format!(\"{}\", crate::b::g()) }"),
            ("b", "fn g() { crate::a::f(); }"),
        ]);
        assert_eq!(found, ["  a -> b: g\n  b -> a: f\n"]);
    }

    #[test]
    fn tests_make_no_arrow() {
        let found = circles(&[
            ("a", "fn f() {} #[cfg(test)] mod tests { use crate::b::g; } #[cfg(test)] mod extra;"),
            ("a::extra", "use crate::b::g; fn h() {}"),
            ("b", "use crate::a::f; fn g() { f() } #[cfg(test)] use crate::a::extra::h;"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
