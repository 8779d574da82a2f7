//! Lowered functions, and the parts of a module that they name.

use super::file::File;
use super::op::{Op, Origin, Slot};
use super::uses::Uses;

/// A constant of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    /// Bits.
    Bits(u64),
    /// The address of a module's variable in the caller's memory, plus an offset.
    Variable(u32, i64),
    /// The offset of a variable in shared memory, plus an offset.
    Shared(u32, i64),
    /// The address of a function.
    Function(u32),
}

/// The arguments and results of a call: from, to, bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    /// The function that is called; of an indirect call, none.
    pub(crate) function: Option<u32>,
    /// From the caller's frame to the callee's.
    pub(crate) arguments: Vec<(u32, u32, u32)>,
    /// From the callee's frame to the caller's.
    pub(crate) results: Vec<(u32, u32, u32)>,
}

/// How many registers of each file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Files {
    pub(crate) words: u32,
    pub(crate) doubles: u32,
    pub(crate) predicates: u32,
}

impl Files {
    /// One register more.
    pub(crate) fn next(&mut self, file: File) -> Slot {
        let count = match file {
            File::Word | File::ConstantWord => &mut self.words,
            File::Double | File::ConstantDouble => &mut self.doubles,
            File::Predicate => &mut self.predicates,
        };
        *count += 1;
        Slot { file, index: *count - 1 }
    }
}

/// A lowered function. Jumps, calls, tables and constants count from the function's own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Function {
    pub(crate) ops: Vec<Op>,
    pub(crate) origins: Vec<Origin>,
    pub(crate) uses: Uses,
    pub(crate) words: Vec<Constant>,
    pub(crate) doubles: Vec<Constant>,
    pub(crate) calls: Vec<Call>,
    pub(crate) tables: Vec<Vec<u32>>,
    pub(crate) files: Files,
    /// The bytes of local memory of one call: parameters and variables.
    pub(crate) frame: u32,
    /// The shared variables that it names.
    pub(crate) shared: Vec<u32>,
    /// The functions that it takes the address of.
    pub(crate) references: Vec<u32>,
    /// Whether it calls by address, or recursion may deepen its stack.
    pub(crate) indirect: bool,
}

impl Function {
    /// An estimate of a thread's registers of 32 bits, from the values that live at once. A compiler
    /// keeps values that all lanes share elsewhere, and folds addresses into accesses.
    pub(crate) fn registers(&self) -> u32 {
        let Files { words, doubles, .. } = self.files;
        words.saturating_add(doubles).max((words / 2).saturating_add(doubles * 2) + 2).min(255)
    }
}

/// A shared variable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedVariable {
    pub(crate) bytes: u32,
    pub(crate) align: u32,
    /// Whether its size is the launch's: `extern` with empty brackets.
    pub(crate) dynamic: bool,
}
