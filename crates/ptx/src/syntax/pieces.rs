//! A module's text in pieces: one for each item, with what it declares.

use std::ops::Range;

use super::lexer::{Lexer, Token};
use super::parser::Parser;
use super::tree::{Item, Linking, Module, Space, Variable};
use crate::error::LoadError;

/// A name that an item declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declared<'t> {
    pub(crate) name: &'t str,
    pub(crate) linking: Linking,
    /// Whether it is defined here, and not only declared.
    pub(crate) defined: bool,
    /// Whether its size is known at a launch only: `.extern .shared .b8 x[]`.
    pub(crate) dynamic: bool,
    pub(crate) shape: Shape,
}

/// The form of a name, in which all modules have to agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A function's results and parameters.
    Function(Vec<Passed>, Vec<Passed>),
    /// The bytes of a variable; `None` if they are not written.
    Variable(Option<u64>),
    /// Another name's form.
    Alias,
}

/// The form of a result or a parameter, as a linker compares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    bytes: u64,
    is_float: bool,
    is_array: bool,
}

impl Passed {
    fn of(variable: &Variable<'_>) -> Self {
        let is_array = !variable.sizes.is_empty();
        let is_float = !is_array && variable.kind.starts_with('f');
        Self { bytes: bytes(variable).unwrap_or(0), is_float, is_array }
    }
}

/// The bytes of a variable of a known type.
fn bytes(variable: &Variable<'_>) -> Option<u64> {
    let digits = variable.kind.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let bits: u64 = match digits {
        "16x2" => 32,
        _ => digits.parse().ok()?,
    };
    let element = (bits / 8).saturating_mul(variable.vector.into());
    let count = |all: u64, size: &Option<u64>| Some(all.saturating_mul((*size)?));
    variable.sizes.iter().try_fold(element, count)
}

/// The text of an item.
#[derive(Debug)]
pub(crate) struct Piece<'t> {
    /// Its bytes in the text, up to the next item.
    pub(crate) span: Range<usize>,
    /// The names that it declares: several variables, one function, or none.
    pub(crate) declared: Vec<Declared<'t>>,
    /// Whether a linked text has it too: its header and its debug information are left out.
    pub(crate) kept: bool,
}

/// The pieces of a text, and its tree without items.
pub(crate) fn pieces(text: &str) -> Result<(Module<'_>, Vec<Piece<'_>>), LoadError> {
    let mut parser = Parser::new(text)?;
    let mut module = Module { address_size: 64, ..Module::default() };
    let mut pieces = Vec::new();
    while parser.token != Token::End {
        let start = parser.place.offset;
        let Token::Dot(directive) = parser.token else { return Err(parser.wrong("a directive")) };
        parser.item(&mut module)?;
        pieces.push(Piece {
            span: start..parser.place.offset.min(text.len()),
            declared: module.items.drain(..).filter_map(|item| declared(&item)).collect(),
            kept: !matches!(directive, "version" | "target" | "address_size" | "section"),
        });
    }
    parser.versioned(module).map(|module| (module, pieces))
}

fn declared<'t>(item: &Item<'t>) -> Option<Declared<'t>> {
    match item {
        Item::Function(function) => Some(Declared {
            name: function.name,
            // Every kernel can be asked for by its name.
            linking: if function.entry { Linking::Visible } else { function.linking },
            defined: function.body.is_some(),
            dynamic: false,
            shape: {
                let all = |variables: &[Variable<'_>]| variables.iter().map(Passed::of).collect();
                let signature = &function.signature;
                Shape::Function(all(&signature.returns), all(&signature.params))
            },
        }),
        Item::Variable(variable) => {
            let is_extern = variable.linking == Linking::Extern;
            Some(Declared {
                name: variable.name,
                linking: variable.linking,
                defined: !is_extern,
                dynamic: is_extern && variable.space == Space::Shared,
                shape: Shape::Variable(bytes(variable)),
            })
        }
        Item::Alias(name, _, _) => Some(Declared {
            name,
            linking: Linking::Weak,
            defined: true,
            dynamic: false,
            shape: Shape::Alias,
        }),
    }
}

/// The names and the places of numbers in a text that is read already.
pub(crate) enum Mark<'t> {
    /// A word.
    Word(&'t str),
    /// The number of a source file: of `.file`, `.loc`, or `inlined_at`.
    File(u32),
}

/// All marks of a text, each with its bytes.
pub(crate) fn marks(text: &str) -> Vec<(Range<usize>, Mark<'_>)> {
    let (mut lexer, mut found, mut numbered) = (Lexer::new(text), Vec::new(), false);
    while let Ok((token, place)) = lexer.next() {
        let span = |length: usize| place.offset..place.offset + length;
        let names_file = numbered;
        numbered = matches!(token, Token::Dot("loc" | "file") | Token::Word("inlined_at"));
        match token {
            Token::End => break,
            Token::Word(word) => found.push((span(word.len()), Mark::Word(word))),
            Token::Number(digits) if names_file => {
                found
                    .extend(digits.parse().ok().map(|file| (span(digits.len()), Mark::File(file))));
            }
            _ => {}
        }
    }
    found
}
