//! Loads and stores of lanes that are together in the shared memory of a block of the cluster.
//!
//! The short path of all accesses knows the block's own shared memory only. This one stands before
//! the way that finds each lane's place by itself.

use super::access::Region;
use super::block::Common;
use super::engine::{Engine, first};
use super::memory::SHARED_WINDOW;
use super::moves::base;
use super::registers::lanes;
use super::warp::{Fragment, Warp};
use crate::code::{Access, Op, Place, RANK_SHIFT};

impl Engine<'_> {
    /// A load. Returns whether one block has the bytes of all lanes: if not, nothing is done.
    pub(super) fn load_in_cluster(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> bool {
        let found = self.region_in_cluster(common, warp, fragment, op, access, mask);
        let Some((region, op)) = found else { return false };
        self.load_from(&region, warp, fragment, &op, (access, mask))
    }

    /// A store, as [`Self::load_in_cluster`].
    pub(super) fn store_in_cluster(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> bool {
        let found = self.region_in_cluster(common, warp, fragment, op, access, mask);
        let Some((region, op)) = found else { return false };
        // SAFETY: shared memory is to write.
        unsafe { self.store_to(&region, warp, fragment, &op, (access, mask)) }
    }

    /// The memory of the block of the cluster that has the bytes of the first lane, and the instruction
    /// with its addresses counted from there.
    fn region_in_cluster(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> Option<(Region, Op)> {
        let window = match access.place {
            Place::Generic if common.cluster.is_some() => SHARED_WINDOW,
            Place::Cluster => 0,
            _ => return None,
        };
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let address = base(&registers, op, access).address(first(mask), op.imm);
        let start = address >> RANK_SHIFT << RANK_SHIFT;
        let host = common.in_cluster(start.checked_sub(window)?, 0).ok()?;
        let bytes = common.shared_bytes;
        // Addresses count from the block's first byte on, so that those of 32 bits find it, too.
        let region = Region { start: 0, bytes, host, apart: 0, is_counted: false, is_alone: true };
        let op = Op { imm: op.imm.wrapping_sub(start), ..op.clone() };
        Some((region, op))
    }
}
