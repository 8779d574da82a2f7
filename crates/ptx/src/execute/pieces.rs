//! The compiled pieces that a run may use.

use crate::jit::{Compiled, Site};

/// The pieces of the kernel, and the windows of the run for them.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    pub(super) compiled: &'a Compiled,
    /// A position is compiled after so many visits.
    pub(super) after: u32,
    /// The windows of the pieces' accesses.
    pub(super) sites: &'a mut Vec<Site>,
}
