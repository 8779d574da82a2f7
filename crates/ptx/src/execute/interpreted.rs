//! Without a compiler there are no pieces to enter.

use std::marker::PhantomData;

use super::access::Blocked;
use super::block::Common;
use super::engine::{ByPieces, Engine};
use super::entrance::Entrance;
use super::turns::{Cursor, Ended, Lap};
use super::warp::{Fragment, Old, Warp};

impl<'a> Engine<'a> {
    /// There is nothing to enter.
    #[inline(always)]
    pub(super) fn entrance(&mut self) -> Entrance<'a> {
        Entrance(PhantomData)
    }

    /// No piece ever begins.
    #[inline(always)]
    pub(super) fn may_enter(&self, _: u32) -> bool {
        false
    }

    /// No piece ever begins.
    #[inline(always)]
    pub(super) fn next_piece(&self, _: bool, _: u32) -> u32 {
        u32::MAX
    }

    /// The interpreter executes the turn.
    #[inline(always)]
    pub(super) fn by_pieces(
        &mut self,
        _: &mut Entrance<'a>,
        _: &mut Common,
        _: &mut Warp,
        _: u32,
    ) -> ByPieces {
        ByPieces::Rest(0)
    }

    /// No part of a warp runs by pieces.
    #[inline(always)]
    pub(super) fn by_part(
        &mut self,
        _: &mut Entrance<'a>,
        _: &mut Common,
        _: &mut Warp,
        _: &mut Fragment,
        _: (u32, &mut u32),
    ) -> Result<bool, Blocked> {
        Ok(false)
    }

    /// No turn goes by pieces.
    #[inline(always)]
    pub(super) fn lap(
        &mut self,
        _: &mut Entrance<'a>,
        _: &mut Common,
        _: &mut [Warp],
        _: &mut Cursor,
        _: (u32, u64),
    ) -> Lap {
        Lap::default()
    }

    /// No turn goes by pieces.
    #[inline(always)]
    pub(super) fn at_once(
        &mut self,
        _: &mut Entrance<'a>,
        _: &mut Common,
        _: &mut Option<Box<Warp>>,
        _: u64,
    ) -> Ended {
        Ended::default()
    }

    /// No block is repeated.
    #[inline(always)]
    pub(super) fn settle(&mut self, _: &mut Entrance<'a>) {}

    /// Without a compiler it is not known which registers the kernel reads.
    #[inline(always)]
    pub(super) fn old_registers(&self) -> Old<'a> {
        Old::Zero
    }
}
