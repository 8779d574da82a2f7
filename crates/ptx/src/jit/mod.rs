//! Machine code for pieces of kernels that run often.
//!
//! A *piece* begins where whole warps have been often, or parts of warps: with all 32 lanes together, or
//! some of them. It holds one or more *extents*: runs of instructions without jumps into them. One extent
//! follows another at once when all its lanes go there, if it is visited as often and the piece has room. A
//! piece ends at instructions that only the interpreter executes: a barrier, an atomic, a call. The
//! interpreter enters it, and goes on where it leaves. Pieces follow one another in a chain
//! (`execute/compiled`), which itself executes an instruction between them if all lanes go on together
//! behind it.
//!
//! One call of a piece can run several whole warps, one after the other: where one comes to a barrier or to its end
//! as the caller expects, the piece begins anew for the next one.
//!
//! Five rules keep both equal, instruction by instruction:
//!
//! - An extent is cut into *segments*. A segment first computes its lines and finds the bytes of all its
//!   accesses. If one is not at hand, or a line does not hold, the piece ends before the segment, of which
//!   nothing is done; the interpreter then executes it. After that nothing can fail: registers, then
//!   memory are written.
//! - An extent that could run for more instructions than the warp's turn has left does not begin.
//! - What all lanes share is computed once, as the interpreter's lines are. Which registers hold lines,
//!   and their steps, was seen when the piece was compiled and is checked when it is entered. A position
//!   may have several pieces, for registers of different kinds, and a piece several versions of an extent.
//!   A launch of another size gets pieces of its own if registers were no lines in those before (`editions`).
//! - Threads of blocks that are 16 wide have lines in each half of their warp. A piece follows those, too.
//!   The interpreter does not know them: their lanes are written behind each segment.
//! - Registers that the kernel reads no more need not be written. Parts of matrices always are: their
//!   instructions look at all lanes, and so at those that have ended.
//!
//! A turn may have too few instructions left for the first extent of a piece. Then a piece for its *tail* follows:
//! one extent of up to sixteen instructions. The interpreter executes the last few.
//!
//! A branch forward around a few instructions, which only some lanes take, does not end a piece where that has
//! happened before: it has a *detour* for the lanes that do not jump.
//!
//! Parts of warps have pieces of their own, at positions where they have been four times as often. Four
//! more rules hold for them:
//!
//! - The lanes that are elsewhere keep their values: results are written over the old ones by a mask.
//!   Only registers that the piece does not write may hold lines.
//! - Such a piece is left before the instruction at which another fragment is, so that both meet. So an
//!   extent ends where jumps lead.
//! - Accesses are made lane by lane, after all of them are known to be inside of one window. Those of a
//!   whole warp with a predicate are, too.
//! - Jumps back are counted, as a fragment that loops has to give way to others.
//!
//! The loops over lanes are vectors of 128 bits, four lanes at a time, through all instructions of a
//! segment, so that values stay in registers of the machine. The code of a short segment is there once for each
//! four lanes; that of a long one is a loop (`lanes`), as making it takes most of the time otherwise.

mod access;
mod apart;
mod compiled;
mod convert;
mod detour;
mod directed;
mod editions;
mod emit;
mod extent;
mod fields;
mod float;
mod group;
mod halves;
mod holds;
mod lanes;
mod legs;
mod line;
mod live;
mod moves;
mod narrow;
mod observed;
mod places;
mod quotient;
mod register;
mod segment;
mod shuffle;
mod sites;
mod state;
mod translate;
mod value;
mod versions;
mod wide;

pub(crate) use compiled::{Compiled, Piece, Position};
pub(crate) use editions::Editions;
pub(crate) use observed::Seen;
pub(crate) use sites::{Site, Sites};
pub(crate) use state::{Behind, Calls, Exchange, Left, Noted, Of, Own, State};
