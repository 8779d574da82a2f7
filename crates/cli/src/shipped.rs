//! The recordings that ship with pagewise, about 1 MB compressed. They are part of the program, so
//! that it can check itself wherever it is installed.

use pagewise_trace::run::Input;

use crate::progress::Progress;

macro_rules! recordings {
    ($($name:literal,)*) => {
        &[$((
            $name,
            include_bytes!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/recordings/h200-580/",
                $name,
            )),
        ),)*]
    };
}

const RECORDINGS: &[(&str, &[u8])] = recordings![
    "advise.jsonl.zst",
    "attach.jsonl.zst",
    "attached-copy.jsonl.zst",
    "attached-work.jsonl.zst",
    "attrs.jsonl.zst",
    "batch.jsonl.zst",
    "contract-batch-starts.jsonl.zst",
    "contract.jsonl.zst",
    "copies.jsonl.zst",
    "discard.jsonl.zst",
    "found.jsonl.zst",
    "fresh.jsonl.zst",
    "migrate.jsonl.zst",
    "parallel.jsonl.zst",
    "pool-reuse.jsonl.zst",
    "pool-rewrite.jsonl.zst",
    "pool-timing.jsonl.zst",
    "pool-touch.jsonl.zst",
    "pools.jsonl.zst",
    "read-mostly-discard.jsonl.zst",
    "rules.jsonl.zst",
    "slab-attach.jsonl.zst",
    "slab-free.jsonl.zst",
    "slab.jsonl.zst",
    "small.jsonl.zst",
    "thrash.jsonl.zst",
    "timing.jsonl.zst",
    "two-gpu-advise.jsonl.zst",
    "two-gpu-attrs.jsonl.zst",
    "two-gpu-contract.jsonl.zst",
    "two-gpu-migrate.jsonl.zst",
    "two-gpu-peer.jsonl.zst",
    "two-gpu-timing.jsonl.zst",
];

/// The recordings, of which what is read counts as progress.
pub(crate) fn inputs(progress: &Progress) -> Vec<Input<'_>> {
    let input = |&(name, bytes): &(&'static str, &'static [u8])| {
        Input::reading(name, move || Ok(progress.counted(bytes)))
    };
    RECORDINGS.iter().map(input).collect()
}

pub(crate) fn total_bytes() -> u64 {
    RECORDINGS.iter().map(|(_, bytes)| bytes.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recording_in_the_repository_is_built_in() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/recordings/h200-580");
        let entries = std::fs::read_dir(directory).expect("the checkout has its recordings");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.expect("readable").file_name().to_string_lossy().into_owned()
        };
        let mut there: Vec<_> = entries.map(name).filter(|name| name.ends_with(".zst")).collect();
        there.sort();
        assert_eq!(there, RECORDINGS.iter().map(|&(name, _)| name).collect::<Vec<_>>());
    }
}
