//! Writes the random kernels of the tests, and their cases for `tests/corpus/run_gpu.py`.
//!
//! usage: `random_kernels FOLDER KERNELS`

#[path = "../tests/random/mod.rs"]
mod random;

use std::path::Path;
use std::{env, fs, process};

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, kernels] = arguments.as_slice() else {
        eprintln!("usage: random_kernels FOLDER KERNELS");
        process::exit(2);
    };
    if let Err(error) = write(Path::new(folder), kernels.parse().unwrap_or(0)) {
        eprintln!("{folder}: {error}");
        process::exit(1);
    }
}

fn write(folder: &Path, kernels: u64) -> Result<(), std::io::Error> {
    fs::create_dir_all(folder)?;
    let mut cases = Vec::new();
    for seed in 0..kernels {
        fs::write(folder.join(format!("{seed}.ptx")), random::kernel(seed))?;
        let bytes = random::THREADS * random::THREAD_BYTES;
        cases.push(format!(
            r#"{{"name": "{seed}", "ptx": "{seed}.ptx", "buffers": [
{{"name": "in", "type": "u32", "count": {}, "rule": ["random"], "seed": {seed}}},
{{"name": "out", "type": "u32", "count": {}, "rule": ["zero"], "seed": 0, "result": true}}],
"launches": [{{"kernel": "random", "grid": [1, 1, 1], "block": [{}, 1, 1], "arguments": ["in", "out"]}}]}}"#,
            random::INPUT_WORDS,
            bytes / 4,
            random::THREADS,
        ));
    }
    fs::write(folder.join("corpus.json"), format!("[\n{}\n]\n", cases.join(",\n")))
}
