//! PTX text: its header, its kernels and its variables. Bodies stay text.
//!
//! Source: NVIDIA's *PTX ISA*, chapters "Syntax", "State spaces, types, and variables" and
//! "Directives". The reader is tolerant: of instructions it looks at the name only, and it passes over
//! directives before a body that it does not know. Time and memory are linear in the text.

mod constant;
mod fault;
mod instructions;
mod lexer;
mod parser;
mod variable;

pub(crate) use fault::{Fault, UNSUPPORTED_PTX_VERSION};
pub(crate) use parser::{Module, read};

/// Whether an image is PTX: comments, and then its version.
pub(crate) fn is_ptx(image: &[u8]) -> bool {
    let mut lexer = lexer::Lexer::new(image);
    lexer.next() == Ok(Some(lexer::Token::Directive("version")))
}
