//! From a module's text to a loaded module.

use crate::error::LoadError;
use crate::lower;
use crate::module::{Module, Target};
use crate::syntax;

impl Module {
    /// Checks a module's text and lowers its functions.
    ///
    /// # Errors
    /// If the text is no PTX, needs a newer GPU than the target, or holds an instruction that this
    /// crate does not execute.
    pub fn load(text: &str, target: &Target) -> Result<Self, LoadError> {
        let tree = syntax::parse(text)?;
        lower::lower(&tree, target.compute)
    }
}
