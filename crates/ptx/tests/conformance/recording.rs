//! The recording of an H200: instruction forms and the results of their cases.

use std::io::Read;

use flate2::read::GzDecoder;

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

/// All forms of the recording.
pub(crate) fn forms() -> Vec<Form> {
    let index = include_str!("../../data/forms.txt");
    let mut bytes = Vec::new();
    let packed: &[u8] = include_bytes!("../../data/results.gz");
    GzDecoder::new(packed).read_to_end(&mut bytes).expect("the recording is whole");
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
    let operands = cases(body, &kinds);
    assert_eq!(operands.len().to_string(), count, "{body}");
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
