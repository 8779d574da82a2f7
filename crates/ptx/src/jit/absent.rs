//! A build without a compiler: all kernels are interpreted.

/// The pieces of a program: there are none.
#[derive(Debug, Default)]
pub(crate) struct Compiled;

/// The window of an access of a piece: there are none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site;
