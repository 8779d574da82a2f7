//! Loads and stores of a fragment.
//!
//! Nearly all accesses of a warp are in one piece of memory that the warp is known to reach. Their
//! offsets in it are found by a few operations on vectors, and the bytes move by the offsets: as one
//! piece if they follow one another. All others take the places of their lanes one by one.

use super::access::{Blocked, Pointers, Region, Wanted, read, write};
use super::block::Common;
use super::engine::Engine;
use super::memory::Kind;
use super::moves::{base, by_machine, leave, load_same};
use super::offsets::Run;
use super::registers::{Results, fill_lines, lanes, lanes_and_lines, leave_lines};
use super::rows;
use super::warp::{Fragment, Warp};
use crate::code::{Access, Op, Place, WIDTH, active};

impl Engine<'_> {
    #[inline(always)]
    pub(super) fn load(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> Result<(), Blocked> {
        if let Some(run) = self.run_of(warp, fragment, op, access, mask)
            && self.load_run(common, warp, fragment, op, (access, run))
        {
            return Ok(());
        }
        leave_lines(self.program, warp, fragment, op, mask);
        if self.load_places(common, warp, fragment, op, access, mask) {
            return Ok(());
        }
        self.load_each(common, warp, fragment, op, access, mask)
    }

    #[inline(always)]
    pub(super) fn store(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> Result<(), Blocked> {
        if let Some(run) = self.run_of(warp, fragment, op, access, mask)
            && self.store_run(common, warp, fragment, op, (access, run))
        {
            return Ok(());
        }
        leave_lines(self.program, warp, fragment, op, mask);
        if self.store_places(common, warp, fragment, op, access, mask) {
            return Ok(());
        }
        self.store_each(common, warp, fragment, op, access, mask)
    }

    /// The address of the first lane, and how those of all lanes follow from it, if all are active.
    /// Bytes of local memory, which are apart from lane to lane, never follow one another.
    #[inline(always)]
    fn run_of(
        &self,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> Option<(Run, u64)> {
        if mask != u32::MAX || matches!(access.place, Place::Local | Place::Frame) {
            return None;
        }
        let (registers, lines) = lanes_and_lines(self.program, warp, &fragment.frame, mask);
        let bytes = access.all_bytes();
        if fragment.is_kernel()
            && let Some((first, step)) = lines.addresses(&registers, op.s[0], access.wide)
        {
            let first = first.wrapping_add(op.imm);
            let address = if access.wide { first } else { u64::from(first as u32) };
            return Some((Run::by_step(step, bytes)?, address));
        }
        let base = base(&registers, op, access);
        Some((Run::of(base, bytes, self.rules.wide_vectors)?, base.address(0, op.imm)))
    }

    /// Where the bytes of all lanes are, if all are there.
    #[inline(always)]
    fn span(
        &mut self,
        common: &mut Common,
        access: Access,
        (run, address): (Run, u64),
        kind: Kind,
    ) -> Option<*mut u8> {
        let wanted = Wanted::of(access, kind, u32::MAX);
        // Addresses of 32 bits are offsets in a named space. Any other wraps before it gets far.
        if !access.wide && matches!(access.place, Place::Global | Place::Generic) {
            return None;
        }
        let span = if run == Run::Row { WIDTH as u32 * wanted.bytes } else { wanted.bytes };
        self.reach.span(common, (access.place, address), span, wanted)
    }

    /// The region that has the bytes of the first lane, if the warp is known to reach it, and their
    /// address.
    #[inline(always)]
    fn region(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, wanted): (Access, Wanted),
    ) -> Option<(Region, u64)> {
        let lane = wanted.mask.trailing_zeros() as usize % WIDTH;
        let registers = lanes(self.program, warp, &fragment.frame, wanted.mask);
        let address = base(&registers, op, access).address(lane, op.imm);
        let region = self.reach.region(common, warp, &fragment.frame, address, wanted)?;
        Some((region, address))
    }

    /// An access to a region is done: its bytes count if the region's do.
    #[inline(always)]
    fn count(&mut self, region: &Region, wanted: Wanted) {
        if region.is_counted {
            self.reach.count(wanted, wanted.mask.count_ones().into());
        }
    }

    /// A load of all lanes, of bytes that follow from those of the first. Returns whether they are in
    /// one region.
    #[inline(never)]
    fn load_run(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, (run, address)): (Access, (Run, u64)),
    ) -> bool {
        let mask = u32::MAX;
        let Some(first) = self.span(common, access, (run, address), Kind::Read) else {
            return false;
        };
        if run == Run::Same {
            let mut results = Results::of(self.program, warp, fragment, mask);
            // SAFETY: `span` found all elements.
            unsafe { load_same(&mut results, op, access, first) };
            return true;
        }
        if fragment.is_kernel() {
            warp.lines.held.forget(op.writes);
        }
        // SAFETY: `span` found all elements of all lanes.
        unsafe {
            if access.is_word() {
                rows::read(first, warp.word_mut(&fragment.frame, op.d[0]));
            } else {
                self.load_row(warp, fragment, op, access, first);
            }
        }
        true
    }

    /// A load of a row of elements that are no words.
    ///
    /// # Safety
    /// As for [`load_row`](super::moves::load_row).
    #[inline(never)]
    unsafe fn load_row(
        &self,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        row: *mut u8,
    ) {
        let mut lanes = lanes(self.program, warp, &fragment.frame, u32::MAX);
        // SAFETY: the caller's; `by_machine` chooses what the machine can run.
        unsafe { by_machine!(self, load_row, &mut lanes, op, access, row) };
    }

    /// A store, as [`Self::load_run`].
    #[inline(never)]
    fn store_run(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, (run, address)): (Access, (Run, u64)),
    ) -> bool {
        let Some(first) = self.span(common, access, (run, address), Kind::Write) else {
            return false;
        };
        fill_lines(self.program, warp, fragment, op.data);
        let words = match run {
            Run::Row if access.is_word() => warp.word(&fragment.frame, op.s[1]),
            _ => None,
        };
        // SAFETY: `span` found all elements of all lanes, to write.
        unsafe {
            match words {
                Some(words) => rows::write(first, words),
                None => self.store_others(warp, fragment, op, (access, run), first),
            }
        }
        true
    }

    /// A store of a row of elements that are no words of registers, or of the same bytes by all lanes.
    ///
    /// # Safety
    /// As for [`store_row`](super::moves::store_row), or [`store_last`](super::moves::store_last).
    #[inline(never)]
    unsafe fn store_others(
        &self,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, run): (Access, Run),
        first: *mut u8,
    ) {
        let lanes = lanes(self.program, warp, &fragment.frame, u32::MAX);
        // SAFETY: the caller's; `by_machine` chooses what the machine can run.
        unsafe {
            match run {
                Run::Row => by_machine!(self, store_row, &lanes, op, access, first),
                Run::Same => by_machine!(self, store_last, &lanes, op, access, first),
            }
        }
    }

    /// A load of lanes with their bytes anywhere in one region. Returns whether they are in one.
    #[inline(never)]
    fn load_places(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> bool {
        let wanted = Wanted::of(access, Kind::Read, mask);
        let found = self.region(common, warp, fragment, op, (access, wanted));
        let Some((region, _)) = found else { return false };
        let is_done = self.load_from(&region, warp, fragment, op, (access, mask));
        if is_done {
            self.count(&region, wanted);
        }
        is_done
    }

    /// A store, as [`Self::load_places`].
    #[inline(never)]
    fn store_places(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> bool {
        let wanted = Wanted::of(access, Kind::Write, mask);
        let found = self.region(common, warp, fragment, op, (access, wanted));
        let Some((region, _)) = found else { return false };
        // SAFETY: the region was asked for to write.
        let is_done = unsafe { self.store_to(&region, warp, fragment, op, (access, mask)) };
        if is_done {
            self.count(&region, wanted);
        }
        is_done
    }

    /// A load of lanes from a region. Returns whether it has all their bytes; if not, nothing is done.
    #[inline(always)]
    pub(super) fn load_from(
        &self,
        region: &Region,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, mask): (Access, u32),
    ) -> bool {
        let mut lanes = lanes(self.program, warp, &fragment.frame, mask);
        // SAFETY: `by_machine` chooses the function that the machine can run.
        unsafe { by_machine!(self, load_places::<false>, &mut lanes, op, access, region) }
    }

    /// A store of lanes to a region, as [`Self::load_from`].
    ///
    /// # Safety
    /// The region's bytes are ones to write.
    #[inline(always)]
    pub(super) unsafe fn store_to(
        &self,
        region: &Region,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, mask): (Access, u32),
    ) -> bool {
        let lanes = lanes(self.program, warp, &fragment.frame, mask);
        // SAFETY: the caller's for the bytes; `by_machine` chooses what the machine can run.
        unsafe { by_machine!(self, store_places::<false>, &lanes, op, access, region) }
    }

    /// A load of lanes that are in several places, or may not be there at all.
    #[cold]
    fn load_each(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> Result<(), Blocked> {
        if self.load_in_cluster(common, warp, fragment, op, access, mask) {
            return Ok(());
        }
        let pointers = self.places(common, warp, fragment, op, (access, Kind::Read), mask)?;
        let mut lanes = lanes(self.program, warp, &fragment.frame, mask);
        let Access { bytes, count, .. } = access;
        for element in 0..usize::from(count) {
            let mut values = [0; WIDTH];
            for lane in active(mask) {
                let place = pointers[lane].wrapping_add(element * usize::from(bytes));
                // SAFETY: `places` gave the pointer for all elements of the access.
                values[lane] = unsafe { read(place, bytes) };
            }
            leave(&mut lanes, op, access, element, values);
        }
        Ok(())
    }

    /// A store, as [`Self::load_each`].
    #[cold]
    fn store_each(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        access: Access,
        mask: u32,
    ) -> Result<(), Blocked> {
        if self.store_in_cluster(common, warp, fragment, op, access, mask) {
            return Ok(());
        }
        let pointers = self.places(common, warp, fragment, op, (access, Kind::Write), mask)?;
        let lanes = lanes(self.program, warp, &fragment.frame, mask);
        let Access { bytes, count, doubles, .. } = access;
        for element in 0..usize::from(count) {
            let source = op.source(element + 1);
            for lane in active(mask) {
                let value = if doubles >> element & 1 != 0 {
                    lanes.double(source)[lane]
                } else {
                    lanes.word(source)[lane].into()
                };
                let place = pointers[lane].wrapping_add(element * usize::from(bytes));
                // SAFETY: `places` gave the pointer for all elements of the access, to write.
                unsafe { write(place, bytes, value) };
            }
        }
        Ok(())
    }

    fn places(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (access, kind): (Access, Kind),
        mask: u32,
    ) -> Result<Pointers, Blocked> {
        let wanted = Wanted::of(access, kind, mask);
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let addresses = registers.addresses(op.s[0], op.imm, access.wide);
        Ok(self.reach.places(common, warp, fragment, &addresses, wanted)?.pointers)
    }
}
