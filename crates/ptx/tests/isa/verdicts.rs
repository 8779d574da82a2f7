//! Modules that `ptxas` accepts or refuses, against the answers of this crate.
//!
//! `data/verdicts.zst` has the verdicts of `ptxas` 13.0 for `sm_90`: all forms of `data/isa.txt`, and forms of
//! which a modifier was replaced, left out or added. `PTX_VERDICTS=FOLDER` writes the modules of all of them
//! to a folder; `conformance/verdicts.py FOLDER` asks `ptxas`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pagewise_ptx::module::{Module, Target};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::grammar::{module, sections};

/// Modifiers that stand where others of the same group do.
const GROUPS: &[&[&str]] = &[
    &["u32", "s32", "b32", "f32"],
    &["u16", "s16", "b16", "f16", "bf16"],
    &["u64", "s64", "b64", "f64"],
    &["f16x2", "bf16x2", "u16x2", "s16x2", "b32"],
    &["u8", "s8", "b8"],
    &["rn", "rz", "rm", "rp"],
    &["rni", "rzi", "rmi", "rpi"],
    &["and", "or", "xor"],
    &["add", "min", "max", "inc", "dec", "exch"],
    &["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "ltu", "num", "nan"],
    &["global", "shared", "local", "const"],
    &["relaxed", "acquire", "release", "acq_rel"],
    &["cta", "cluster", "gpu", "sys"],
    &["row", "col"],
    &["ca", "cg", "cs", "lu", "cv", "wb", "wt"],
];

/// Modifiers that are added.
const ADDED: &[&str] = &[
    "ftz",
    "sat",
    "rn",
    "rz",
    "rzi",
    "cc",
    "relu",
    "NaN",
    "volatile",
    "aligned",
    "noftz",
    "satfinite",
    "uni",
    "approx",
    "full",
    "wide",
    "lo",
    "hi",
    "abs",
    "relaxed",
    "acquire",
    "gpu",
    "v2",
    "nc",
    "shared",
    "global",
    "sync",
];

/// Modules that both accept, that both refuse, that only this crate accepts (mixed signs of `wmma`, the order of
/// some modifiers, the number of a barrier), and that only `ptxas` accepts (instructions that are not executed,
/// most of them video instructions).
const VERDICTS: [usize; 4] = [4922, 11_736, 12, 384];

/// How many changed forms there are.
const CHANGED: usize = 12_000;

/// The opcodes and operands of all forms, and of changed ones by a fixed seed.
fn forms() -> Vec<(String, String)> {
    let listed = sections().into_iter().flat_map(|section| section.lines);
    let mut all: Vec<_> = listed.flat_map(|line| line.forms).collect();
    let mut known: HashSet<_> = all.iter().cloned().collect();
    let mut random = StdRng::seed_from_u64(18);
    let listed = all.len();
    while all.len() < listed + CHANGED {
        let at = random.random_range(0..listed);
        let (opcode, operands) = &all[at];
        let Some(opcode) = changed(opcode, &mut random) else { continue };
        let form = (opcode, operands.clone());
        if known.insert(form.clone()) {
            all.push(form);
        }
    }
    all
}

/// An opcode with one modifier replaced, left out or added.
fn changed(opcode: &str, random: &mut StdRng) -> Option<String> {
    let mut parts: Vec<_> = opcode.split('.').collect();
    let at = random.random_range(0..parts.len());
    match random.random_range(0..3) {
        0 => {
            let group = GROUPS.iter().find(|group| group.contains(&parts[at]))?;
            parts[at] = group.choose(random)?;
        }
        1 if at > 0 => _ = parts.remove(at),
        // A modifier twice is accepted by `ptxas` now and then.
        2 => {
            let added = ADDED.choose(random)?;
            if parts.contains(added) {
                return None;
            }
            parts.insert(at + 1, added);
        }
        _ => return None,
    }
    Some(parts.join("."))
}

fn write(folder: &Path) {
    let mut index = String::new();
    for (number, (opcode, operands)) in forms().iter().enumerate() {
        fs::write(folder.join(format!("{number}.ptx")), module(opcode, operands)).unwrap();
        let _ = writeln!(index, "{opcode}\t{operands}");
    }
    fs::write(folder.join("index.txt"), index).unwrap();
}

#[test]
fn modules_are_accepted_and_refused_as_by_ptxas() {
    if let Some(folder) = std::env::var_os("PTX_VERDICTS") {
        return write(Path::new(&folder));
    }
    let packed: &[u8] = include_bytes!("../../data/verdicts.zst");
    let text = String::from_utf8(zstd::decode_all(packed).unwrap()).unwrap();
    let (mut both, mut neither, mut here, mut there) = (0, 0, Vec::new(), Vec::new());
    for line in text.lines() {
        let fields: Vec<_> = line.split('\t').collect();
        let [opcode, operands, verdict] = fields[..] else { panic!("three fields: {line}") };
        let answer = Module::load(&module(opcode, operands), &Target { compute: (9, 0) });
        match (answer, verdict) {
            (Ok(_), "accepted") => both += 1,
            (Err(_), "refused") => neither += 1,
            (Ok(_), _) => here.push(format!("{opcode} {operands}")),
            (Err(error), _) => there.push(format!("{opcode} {operands}: {}", error.message)),
        }
    }
    let lists = format!("accepted here only: {here:#?}\naccepted by ptxas only: {there:#?}");
    assert_eq!([both, neither, here.len(), there.len()], VERDICTS, "{lists}");
}
