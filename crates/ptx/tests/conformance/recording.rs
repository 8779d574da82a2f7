//! The recording of an H200: instruction forms and the results of their cases.

use std::fs;
use std::path::Path;

use crate::operands::{bits, cases};

/// An instruction form with what an H200 gave.
pub(crate) struct Form {
    /// The PTX: operands are `a0`, `a1` and so on, results `d0`, `d1` and so on.
    pub(crate) body: String,
    /// The kinds of the operands.
    pub(crate) kinds: Vec<String>,
    /// The sizes of the results, as kinds.
    pub(crate) sizes: Vec<String>,
    /// The operands of each case.
    pub(crate) operands: Vec<Vec<u64>>,
    /// The results of each case.
    pub(crate) results: Vec<Vec<u64>>,
}

/// All forms of the recording: of `data`, or of the folder that `PTX_RECORDING` names.
pub(crate) fn forms() -> Vec<Form> {
    let (index, bytes) = match std::env::var_os("PTX_RECORDING") {
        Some(folder) => {
            let folder = Path::new(&folder);
            let index = fs::read_to_string(folder.join("forms.txt")).expect("an index");
            (index, fs::read(folder.join("results")).expect("results"))
        }
        None => {
            let packed: &[u8] = include_bytes!("../../data/results.zst");
            let bytes = zstd::decode_all(packed).expect("the recording is whole");
            (include_str!("../../data/forms.txt").to_owned(), bytes)
        }
    };
    let mut rest = bytes.as_slice();
    let forms: Vec<_> = index.lines().map(|line| form(line, &mut rest)).collect();
    assert!(rest.is_empty(), "results of no form: {} bytes", rest.len());
    forms
}

/// One form, and its part of the results.
fn form(line: &str, rest: &mut &[u8]) -> Form {
    let fields: Vec<_> = line.split('\t').collect();
    let [body, kinds, sizes, count] = fields[..] else { panic!("four fields: {line}") };
    let kinds: Vec<_> = kinds.split(' ').collect();
    let operands = cases(body, &kinds, count.parse().expect("a number of cases"));
    let mut results = vec![Vec::new(); operands.len()];
    let sizes: Vec<_> = sizes.split(' ').map(str::to_owned).collect();
    for size in &sizes {
        let size = bits(size) as usize / 8;
        for case in &mut results {
            let (value, after) = rest.split_at(size);
            let mut bytes = [0; 8];
            bytes[..size].copy_from_slice(value);
            case.push(u64::from_le_bytes(bytes));
            *rest = after;
        }
    }
    let kinds = kinds.into_iter().map(str::to_owned).collect();
    Form { body: body.to_owned(), kinds, sizes, operands, results }
}
