//! Cases of the corpus, and a small machine to run them on.

pub(crate) mod case;
pub(crate) mod machine;
pub(crate) mod outcome;

use std::path::{Path, PathBuf};

/// The folder of the corpus.
pub(crate) fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}
