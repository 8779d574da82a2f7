//! Refusals of modules.

use thiserror::Error;

/// A refusal of a module: where, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {message}{}", shown(.instruction))]
pub struct LoadError {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// The defect and its remedy.
    pub message: String,
    /// The instruction's text; empty outside instructions.
    pub instruction: String,
}

impl LoadError {
    /// An error at a place of the text.
    pub(crate) fn at(line: u32, column: u32, message: impl Into<String>) -> Self {
        Self { line, column, message: message.into(), instruction: String::new() }
    }

    /// Whether the text is PTX that this crate does not execute. Otherwise it is wrong, or for a
    /// newer GPU.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.message.contains("not supported")
    }
}

fn shown(instruction: &str) -> String {
    if instruction.is_empty() { String::new() } else { format!(" in `{instruction}`") }
}
