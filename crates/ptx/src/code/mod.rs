//! The lowered form: instructions that work on all 32 lanes of a warp at once.

mod access;
mod allocate;
mod apply;
mod even;
mod file;
mod form;
mod lanes;
mod line;
mod lines;
mod mask;
mod matrix;
pub(crate) mod once;
mod op;
mod program;
mod unit;
mod uses;
mod wide;

pub(crate) use access::*;
pub(crate) use allocate::{allocate, blocks};
pub(crate) use apply::{
    binary, compare, quaternary, slow_binary, slow_ternary, slow_unary, ternary, unary,
};
pub(crate) use file::File;
pub(crate) use form::{
    Compared, FLUSH, Form, Logic, MINUS_OTHER, MINUS_PRODUCT, Narrow, Width, field_at, field_of,
};
pub(crate) use lanes::{CONSTANT, First, Lanes, Value, WIDTH, active, is_constant};
pub(crate) use line::{Axis, Line, NO_STEP, Wrapping, half_step};
pub(crate) use lines::{Held, Lines, MOST_LINES, Set};
pub(crate) use mask::{bits, lanes_where, pack, signs};
pub(crate) use matrix::{Factors, Layout, MatrixAccess, Product, Quads, Sum};
pub(crate) use op::*;
pub(crate) use program::{Program, reached};
pub(crate) use unit::*;
pub(crate) use uses::{Register, Uses};
pub(crate) use wide::{chosen, has_wide_vectors};
