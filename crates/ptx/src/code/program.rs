//! A kernel with all functions that it reaches, as one list of instructions.

use super::even::even;
use super::lanes::WIDTH;
use super::op::{Code, Op, Origin};
use super::unit::{Call, Constant, Files, Function};
use super::uses::Uses;

/// A function of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linked {
    /// The index in the module.
    pub(crate) index: u32,
    /// The first instruction.
    pub(crate) start: u32,
    pub(crate) files: Files,
    pub(crate) frame: u32,
    /// The first constants of each width.
    pub(crate) words: u32,
    pub(crate) doubles: u32,
}

/// A kernel that can run.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    pub(crate) origins: Vec<Origin>,
    pub(crate) uses: Uses,
    pub(crate) constant_words: Vec<[u32; WIDTH]>,
    pub(crate) constant_doubles: Vec<[u64; WIDTH]>,
    /// Calls; their functions are indices of `functions`.
    pub(crate) calls: Vec<Call>,
    pub(crate) tables: Vec<Vec<u32>>,
    /// The kernel is the first.
    pub(crate) functions: Vec<Linked>,
    /// Whether warps go on evenly from each position on, which is one behind a barrier.
    even: Vec<bool>,
    /// Whether an instruction may write shared memory.
    pub(crate) writes_shared: bool,
}

/// The functions that a function reaches, itself first.
pub(crate) fn reached(functions: &[Function], from: u32) -> Vec<u32> {
    let mut order = vec![from];
    let mut seen = vec![false; functions.len()];
    seen[from as usize] = true;
    let mut next = 0;
    while let Some(&index) = order.get(next) {
        next += 1;
        let function = &functions[index as usize];
        let called = function.calls.iter().filter_map(|call| call.function);
        for other in called.chain(function.references.iter().copied()) {
            if !std::mem::replace(&mut seen[other as usize], true) {
                order.push(other);
            }
        }
    }
    order
}

impl Program {
    /// Whether the warps of a block go on evenly from a position on, which is one behind a barrier.
    #[inline(always)]
    pub(crate) fn goes_evenly(&self, position: u32) -> bool {
        self.even.get(position as usize) == Some(&true)
    }

    /// Joins functions. `value` says what a constant is.
    pub(crate) fn link(
        functions: &[Function],
        order: &[u32],
        value: impl Fn(Constant) -> u64,
    ) -> Self {
        let mut program = Self {
            ops: Vec::new(),
            origins: Vec::new(),
            uses: Uses::default(),
            constant_words: Vec::new(),
            constant_doubles: Vec::new(),
            calls: Vec::new(),
            tables: Vec::new(),
            functions: Vec::new(),
            even: Vec::new(),
            writes_shared: false,
        };
        let place = |index: u32| order.iter().position(|&other| other == index).map(|at| at as u32);
        for &index in order {
            let function = &functions[index as usize];
            let start = program.ops.len() as u32;
            program.functions.push(Linked {
                index,
                start,
                files: function.files,
                frame: function.frame,
                words: program.constant_words.len() as u32,
                doubles: program.constant_doubles.len() as u32,
            });
            let (calls, tables) = (program.calls.len() as u32, program.tables.len() as u32);
            for op in &function.ops {
                let mut op = op.clone();
                match &mut op.code {
                    Code::Branch(target) => *target += start,
                    Code::BranchTable(table) => *table += tables,
                    Code::Call(call) | Code::CallIndirect(call) => *call += calls,
                    _ => {}
                }
                program.ops.push(op);
            }
            program.origins.extend(&function.origins);
            program.uses.append(&function.uses);
            program
                .constant_words
                .extend(function.words.iter().map(|&word| [value(word) as u32; WIDTH]));
            program
                .constant_doubles
                .extend(function.doubles.iter().map(|&double| [value(double); WIDTH]));
            program.calls.extend(
                function
                    .calls
                    .iter()
                    .map(|call| Call { function: call.function.and_then(place), ..call.clone() }),
            );
            let tables = function.tables.iter();
            program.tables.extend(
                tables.map(|table| table.iter().map(|target| target + start).collect::<Vec<_>>()),
            );
        }
        program.even = even(&program.ops, &program.tables);
        program.writes_shared = program.ops.iter().any(|op| op.code.may_write_shared());
        program
    }
}
