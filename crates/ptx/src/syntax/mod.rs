//! The text of a module and its syntax tree.
//!
//! The parser is a recursive descent over the tokens. It knows the shapes of statements and no
//! instruction: `lower` knows those.

mod body;
mod lexer;
mod parser;
pub(crate) mod pieces;
pub mod tree;

pub use parser::parse;
