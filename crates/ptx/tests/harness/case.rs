//! The cases of `corpus.json` and the results of `expected/`.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;
use serde_json::Value;

use super::corpus;

/// Kernels that run one after the other over some buffers.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The file, from the corpus's folder.
    pub(crate) ptx: String,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) launches: Vec<Launch>,
    /// Whether printed text is compared, and how.
    pub(crate) stdout: Option<String>,
    #[serde(default)]
    pub(crate) fails: bool,
}

/// Memory of a case.
#[derive(Debug, Deserialize)]
pub(crate) struct Buffer {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) count: usize,
    rule: Option<Vec<Value>>,
    seed: u64,
    #[serde(default)]
    pub(crate) result: bool,
    #[serde(default)]
    pub(crate) sorted: bool,
    pub(crate) near: Option<f64>,
    #[serde(default)]
    pub(crate) symbol: bool,
}

/// One launch.
#[derive(Debug, Deserialize)]
pub(crate) struct Launch {
    pub(crate) kernel: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    #[serde(default)]
    pub(crate) shared: u32,
    #[serde(default)]
    pub(crate) cooperative: bool,
    arguments: Vec<Value>,
}

/// The results of a case on an H200.
#[derive(Debug, Deserialize)]
pub(crate) struct Expected {
    name: String,
    pub(crate) status: u32,
    #[serde(default)]
    pub(crate) stdout: String,
    /// The place and length of each result in `results.bin`.
    results: BTreeMap<String, (usize, usize)>,
}

/// The cases and their results, in order.
pub(crate) fn all() -> Vec<(Case, Expected, BTreeMap<String, Vec<u8>>)> {
    let folder = corpus();
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&read("corpus.json")).unwrap();
    let rows: Vec<Expected> = serde_json::from_slice(&read("expected/results.json")).unwrap();
    let bytes = read("expected/results.bin");
    assert_eq!(cases.len(), rows.len());
    cases
        .into_iter()
        .zip(rows)
        .map(|(case, row)| {
            assert_eq!(case.name, row.name);
            let results = row
                .results
                .iter()
                .map(|(name, (at, length))| (name.clone(), bytes[*at..at + length].to_vec()))
                .collect();
            (case, row, results)
        })
        .collect()
}

/// The i-th number of the splitmix64 sequence of a seed.
fn splitmix(seed: u64, i: u64) -> u64 {
    let z = seed.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// The bytes of a number in JSON, as a type.
fn encode(kind: &str, value: &Value) -> Vec<u8> {
    match kind {
        "f32" => (value.as_f64().unwrap() as f32).to_le_bytes().to_vec(),
        "f64" => value.as_f64().unwrap().to_le_bytes().to_vec(),
        _ => whole(kind, value.as_i64().unwrap_or_else(|| value.as_u64().unwrap() as i64) as u64),
    }
}

/// The low bytes of a number, as many as a type has.
fn whole(kind: &str, value: u64) -> Vec<u8> {
    value.to_le_bytes()[..element_bytes(kind)].to_vec()
}

/// The size of an element.
pub(crate) fn element_bytes(kind: &str) -> usize {
    kind[1..].parse::<usize>().unwrap() / 8
}

impl Buffer {
    /// The size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.count * element_bytes(&self.kind)
    }

    /// The contents before the first launch; `None` if the case leaves them as they are.
    pub(crate) fn contents(&self) -> Option<Vec<u8>> {
        let rule = self.rule.as_ref()?;
        let name = rule[0].as_str().unwrap();
        if name == "text" {
            let mut text = rule[1].as_str().unwrap().as_bytes().to_vec();
            text.resize(self.count, 0);
            return Some(text);
        }
        Some((0..self.count as u64).flat_map(|i| self.element(name, rule, i)).collect())
    }

    fn element(&self, name: &str, rule: &[Value], i: u64) -> Vec<u8> {
        let kind = self.kind.as_str();
        let bits = splitmix(self.seed, i);
        match (name, kind) {
            ("fill", _) => encode(kind, &rule[1]),
            ("linear", "f32" | "f64") => {
                let value = rule[1].as_f64().unwrap() + rule[2].as_f64().unwrap() * i as f64;
                encode(kind, &Value::from(value))
            }
            ("linear", _) => {
                let step = rule[2].as_i64().unwrap().wrapping_mul(i as i64);
                whole(kind, rule[1].as_i64().unwrap().wrapping_add(step) as u64)
            }
            ("random", "f32") => {
                (((bits >> 40) as f64 / f64::from(1 << 23) - 1.0) as f32).to_le_bytes().to_vec()
            }
            ("random", "f64") => {
                ((bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0).to_le_bytes().to_vec()
            }
            ("random", _) => whole(kind, bits),
            ("below", _) => whole(kind, bits % rule[1].as_u64().unwrap()),
            ("iota", "f32") => (i as f32).to_le_bytes().to_vec(),
            ("iota", _) => whole(kind, i),
            ("zero", _) => whole(kind, 0),
            _ => panic!("{name} is no rule"),
        }
    }
}

impl Launch {
    /// The bytes of each argument.
    pub(crate) fn arguments(&self, address_of: impl Fn(&str) -> u64) -> Vec<Vec<u8>> {
        self.arguments.iter().map(|argument| value_of(argument, &address_of)).collect()
    }
}

fn value_of(argument: &Value, address_of: impl Fn(&str) -> u64) -> Vec<u8> {
    if let Some(name) = argument.as_str() {
        return address_of(name).to_le_bytes().to_vec();
    }
    let kind = argument[0].as_str().unwrap();
    match kind {
        "bytes" => {
            let digits = argument[1].as_str().unwrap();
            let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
            (0..digits.len()).step_by(2).map(byte).collect()
        }
        "random" => {
            let words = argument[1].as_u64().unwrap();
            (0..words).flat_map(|i| (splitmix(1, i) as u32).to_le_bytes()).collect()
        }
        _ => encode(kind, &argument[1]),
    }
}
