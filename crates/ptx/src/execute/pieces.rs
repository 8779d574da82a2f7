//! The compiled pieces that a run may use.

use crate::jit::{Compiled, Sites};

/// The pieces of the kernel, and the memory that their accesses found last.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    pub(super) compiled: &'a Compiled,
    /// A position is compiled after so many visits.
    pub(super) after: u32,
    pub(super) sites: &'a mut Sites,
}
