//! The argument `-`.

use std::path::Path;

/// The argument that stands for standard input, or for standard output.
pub(crate) const STANDARD: &str = "-";

/// Whether an argument stands for standard input or output. A file of that name is `./-`.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new(STANDARD)
}
