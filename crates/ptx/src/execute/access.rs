//! Accesses to memory: addresses become places in this process, and then the bytes move.
//!
//! All lanes find their places before any byte moves. If one lane must wait, the instruction has
//! done nothing and is repeated later.

use super::block::Common;
use super::count::Counts;
use super::memory::{
    Kind, LOCAL_WINDOW, Memory, Outstanding, PARAMETER_WINDOW, SHARED_WINDOW, Stop,
};
use super::report::{Cause, Stats};
use super::warp::{Bytes, Fragment, Frame, Warp};
use super::windows::Kept;
use crate::code::{Access, Place, WIDTH, active};

/// How often an instruction looks for its windows again when the memory moves under it.
const RETRIES: u32 = 4;

/// The reason that an instruction does not go on.
#[derive(Debug)]
pub(super) enum Blocked {
    /// An access waits for its bytes.
    Memory,
    /// The kernel ends. It is behind a pointer, so that results without it stay small.
    Trap(Box<Trap>),
}

/// The end of a kernel by an instruction.
#[derive(Debug)]
pub(super) struct Trap {
    pub(super) lane: usize,
    /// The address, if an access is the cause.
    pub(super) address: Option<u64>,
    pub(super) cause: Cause,
}

impl Blocked {
    /// The kernel ends.
    #[cold]
    pub(super) fn trap(lane: usize, address: Option<u64>, cause: Cause) -> Self {
        Self::Trap(Box::new(Trap { lane, address, cause }))
    }
}

/// The memory of a run, with the windows that it has given.
pub(super) struct Reach<'a> {
    pub(super) memory: &'a mut dyn Memory,
    pub(super) kept: &'a mut Kept,
    pub(super) params: &'a mut Bytes,
    pub(super) param_bytes: u32,
    pub(super) outstanding: &'a mut Vec<Outstanding>,
    pub(super) stats: &'a mut Stats,
    pub(super) counts: &'a mut Counts,
    /// The place of the instruction among those of the warp that wait.
    pub(super) nth: u32,
}

/// Where the bytes of the active lanes are.
pub(super) type Pointers = [*mut u8; WIDTH];

/// The places that an instruction accesses.
pub(super) struct Places {
    /// Those of lanes that are not active are of no use.
    pub(super) pointers: Pointers,
    /// Whether it is known that no other thread of the process accesses the bytes.
    pub(super) is_alone: bool,
}

/// One access of a fragment.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) place: Place,
    /// A power of two.
    pub(super) bytes: u32,
    pub(super) kind: Kind,
    pub(super) mask: u32,
}

impl Wanted {
    /// A load or store of the lanes of a mask.
    #[inline(always)]
    pub(super) fn of(access: Access, kind: Kind, mask: u32) -> Self {
        Self { place: access.place, bytes: access.all_bytes(), kind, mask }
    }
}

/// A piece of memory that all lanes of a warp may access.
pub(super) struct Region {
    /// The address of its first byte.
    pub(super) start: u64,
    pub(super) bytes: u32,
    /// Where the first lane's bytes are, and how far apart those of the lanes are.
    pub(super) host: *mut u8,
    pub(super) apart: usize,
    /// Whether the figures of a run count its bytes.
    pub(super) is_counted: bool,
    /// Whether no other thread of the process accesses its bytes.
    pub(super) is_alone: bool,
}

impl Reach<'_> {
    /// Forgets windows that no longer hold.
    #[inline(always)]
    pub(super) fn renew(&mut self) {
        self.kept.renew(self.memory.generation());
    }

    /// Finds the places of all active lanes.
    pub(super) fn places(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        addresses: &[u64; WIDTH],
        wanted: Wanted,
    ) -> Result<Places, Blocked> {
        if let Some(found) = self.together(common, warp, &fragment.frame, addresses, wanted) {
            return Ok(found);
        }
        let mut pointers = [std::ptr::null_mut(); WIDTH];
        for _ in 0..RETRIES {
            let generation = self.memory.generation();
            self.kept.renew(generation);
            let mut waits = false;
            for lane in active(wanted.mask) {
                let address = addresses[lane];
                if address & u64::from(wanted.bytes - 1) != 0 {
                    let cause = Cause::Misaligned { bytes: wanted.bytes };
                    return Err(Blocked::trap(lane, Some(address), cause));
                }
                match self.place(common, warp, fragment, lane, address, wanted) {
                    Ok(Some(pointer)) => pointers[lane] = pointer,
                    Ok(None) => {
                        waits = true;
                        self.wait(common, warp, address, wanted.kind);
                    }
                    Err(cause) => return Err(Blocked::trap(lane, Some(address), cause)),
                }
            }
            if waits {
                return Err(Blocked::Memory);
            }
            if self.memory.generation() == generation {
                return Ok(Places { pointers, is_alone: false });
            }
        }
        // The memory moves the bytes of one lane away for those of another: let others run first.
        if let Some(lane) = active(wanted.mask).next() {
            self.wait(common, warp, addresses[lane], wanted.kind);
        }
        Err(Blocked::Memory)
    }

    /// The places of all active lanes, if one region has them all.
    fn together(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        frame: &Frame,
        addresses: &[u64; WIDTH],
        wanted: Wanted,
    ) -> Option<Places> {
        let first = wanted.mask.trailing_zeros() as usize % WIDTH;
        let region = self.region(common, warp, frame, addresses[first], wanted)?;
        let last = u64::from(region.bytes.checked_sub(wanted.bytes)?);
        let odd = u64::from(wanted.bytes - 1);
        let mut misses = region.apart != 0;
        let mut pointers = [std::ptr::null_mut(); WIDTH];
        for lane in 0..WIDTH {
            let offset = addresses[lane].wrapping_sub(region.start);
            let is_active = wanted.mask >> lane & 1 != 0;
            misses |= is_active & ((offset > last) | (addresses[lane] & odd != 0));
            pointers[lane] = region.host.wrapping_add(offset as usize);
        }
        if misses {
            return None;
        }
        if region.is_counted {
            self.count(wanted, wanted.mask.count_ones().into());
        }
        Some(Places { pointers, is_alone: region.is_alone })
    }

    /// The memory around an address, if the warp is known to reach it.
    #[inline(always)]
    pub(super) fn region(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        frame: &Frame,
        address: u64,
        wanted: Wanted,
    ) -> Option<Region> {
        let (place, offset) = decoded(wanted.place, address, frame)?;
        let (host, bytes, apart) = match place {
            Place::Shared => (common.shared.pointer(), common.shared_bytes, 0),
            Place::Parameter if wanted.kind == Kind::Read => {
                (self.params.pointer(), self.param_bytes, 0)
            }
            Place::Local => (warp.local_pointer(0, 0), warp.local_bytes, warp.local_bytes as usize),
            Place::Global => {
                let window = self.kept.find(offset, wanted.bytes.into(), wanted.kind)?;
                // Of a large window, the part around the address.
                let skipped = (offset - window.start()).saturating_sub(1 << 31) & !0xf;
                let bytes = (window.bytes() - skipped).min(u32::MAX.into()) as u32;
                let host = window.host().wrapping_add(skipped as usize);
                return Some(Region {
                    start: window.start() + skipped,
                    bytes,
                    host,
                    apart: 0,
                    is_counted: true,
                    is_alone: window.is_alone(),
                });
            }
            _ => return None,
        };
        let start = address.wrapping_sub(offset);
        Some(Region { start, bytes, host, apart, is_counted: false, is_alone: true })
    }

    /// Where bytes that follow one another are, of all lanes from the first one's address on, if the
    /// warp is known to reach them. They count as accessed. Bytes of local memory, which are apart from
    /// lane to lane, are no such bytes.
    #[inline(always)]
    pub(super) fn span(
        &mut self,
        common: &mut Common,
        (place, address): (Place, u64),
        span: u32,
        wanted: Wanted,
    ) -> Option<*mut u8> {
        let (place, offset) = decoded(place, address, &Frame::default())?;
        if address & u64::from(wanted.bytes - 1) != 0 {
            return None;
        }
        let (host, limit) = match place {
            Place::Shared => (common.shared.pointer(), common.shared_bytes),
            Place::Parameter if wanted.kind == Kind::Read => {
                (self.params.pointer(), self.param_bytes)
            }
            Place::Global => {
                let window = self.kept.find(offset, span.into(), wanted.kind)?;
                self.count(wanted, WIDTH as u64);
                return Some(window.host().wrapping_add((offset - window.start()) as usize));
            }
            _ => return None,
        };
        let is_inside = offset <= u64::from(limit.checked_sub(span)?);
        is_inside.then(|| host.wrapping_add(offset as usize))
    }

    #[inline(always)]
    pub(super) fn count(&mut self, wanted: Wanted, lanes: u64) {
        let bytes = lanes * u64::from(wanted.bytes);
        if wanted.kind == Kind::Read {
            self.stats.bytes_read += bytes;
        } else {
            self.stats.bytes_written += bytes;
        }
    }

    /// The access waits: once for each page of 4 KiB of an instruction.
    pub(super) fn wait(&mut self, common: &Common, warp: &Warp, address: u64, kind: Kind) {
        let new = Outstanding {
            block: common.linear,
            warp: warp.index,
            sm: common.sm,
            nth: self.nth,
            address,
            kind,
        };
        let same = self.outstanding.iter().rev().take(WIDTH).any(|old| {
            (old.block, old.warp, old.nth, old.kind) == (new.block, new.warp, new.nth, new.kind)
                && old.address >> 12 == address >> 12
        });
        if !same {
            self.outstanding.push(new);
        }
    }

    /// The place of one lane; `None` if it waits.
    pub(super) fn place(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        lane: usize,
        address: u64,
        wanted: Wanted,
    ) -> Result<Option<*mut u8>, Cause> {
        let bytes = u64::from(wanted.bytes);
        let Some((place, offset)) = decoded(wanted.place, address, &fragment.frame) else {
            let why = "no memory has such an address".to_owned();
            return Err(Cause::IllegalAddress { kind: wanted.kind, why });
        };
        let inside =
            |limit: u32| offset.checked_add(bytes).is_some_and(|end| end <= u64::from(limit));
        match place {
            Place::Shared if inside(common.shared_bytes) => {
                Ok(Some(common.shared.pointer().wrapping_add(offset as usize)))
            }
            // A generic address may be in another block.
            Place::Shared if wanted.place == Place::Generic => {
                common.in_cluster(offset, bytes).map(Some)
            }
            Place::Cluster => common.in_cluster(offset, bytes).map(Some),
            Place::Shared => Err(Cause::OutsideShared { bytes: common.shared_bytes }),
            Place::Local if inside(warp.local_bytes) => Ok(Some(warp.local_pointer(lane, offset))),
            Place::Local => Err(Cause::OutsideLocal { bytes: warp.local_bytes }),
            Place::Parameter if inside(self.param_bytes) && wanted.kind == Kind::Read => {
                Ok(Some(self.params.pointer().wrapping_add(offset as usize)))
            }
            Place::Parameter => Err(Cause::OutsideParameters),
            _ => self.window(offset, wanted),
        }
    }

    /// The place of an address of the caller's memory; `None` if it waits.
    fn window(&mut self, address: u64, wanted: Wanted) -> Result<Option<*mut u8>, Cause> {
        let bytes = u64::from(wanted.bytes);
        let window = match self.kept.find(address, bytes, wanted.kind) {
            Some(window) => window,
            None if self.kept.waits(address, wanted.kind) => return Ok(None),
            None => match self.memory.window(address, wanted.bytes, wanted.kind) {
                Ok(window) if window.holds(address, bytes) => {
                    self.kept.keep(address, wanted.kind, window);
                    window
                }
                Ok(_) => {
                    let why = "the memory gave a window without the bytes".to_owned();
                    return Err(Cause::IllegalAddress { kind: wanted.kind, why });
                }
                Err(Stop::Wait) => {
                    self.kept.note_wait(address, wanted.kind);
                    return Ok(None);
                }
                Err(Stop::Refused(why)) => {
                    return Err(Cause::IllegalAddress { kind: wanted.kind, why });
                }
            },
        };
        self.count(wanted, 1);
        Ok(Some(window.host().wrapping_add((address - window.start()) as usize)))
    }
}

/// The state space of an address, and its offset there; `None` if no space has it.
#[inline(always)]
fn decoded(place: Place, address: u64, frame: &Frame) -> Option<(Place, u64)> {
    Some(match place {
        Place::Generic => match address >> 56 << 56 {
            0 => (Place::Global, address),
            SHARED_WINDOW => (Place::Shared, address - SHARED_WINDOW),
            LOCAL_WINDOW => (Place::Local, address - LOCAL_WINDOW),
            PARAMETER_WINDOW => (Place::Parameter, address - PARAMETER_WINDOW),
            _ => return None,
        },
        Place::Frame => (Place::Local, u64::from(frame.local).wrapping_add(address)),
        named => (named, address),
    })
}

/// Reads an integer of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// The pointer is one that [`Reach::places`] gave for at least as many bytes, in this instruction.
#[inline(always)]
pub(super) unsafe fn read(pointer: *mut u8, bytes: u8) -> u64 {
    // SAFETY: the caller's; the width is the access's, and the window's alignment follows the
    // address's. Volatile: another thread of the process may write these bytes at any time.
    unsafe {
        match bytes {
            1 => u64::from(pointer.read_volatile()),
            2 => u64::from(pointer.cast::<u16>().read_volatile()),
            4 => u64::from(pointer.cast::<u32>().read_volatile()),
            _ => pointer.cast::<u64>().read_volatile(),
        }
    }
}

/// Writes an integer of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// The pointer is one that [`Reach::places`] gave for at least as many bytes to write, in this
/// instruction.
#[inline(always)]
pub(super) unsafe fn write(pointer: *mut u8, bytes: u8, value: u64) {
    // SAFETY: the caller's, as in `read`; the bytes are ones to write.
    unsafe {
        match bytes {
            1 => pointer.write_volatile(value as u8),
            2 => pointer.cast::<u16>().write_volatile(value as u16),
            4 => pointer.cast::<u32>().write_volatile(value as u32),
            _ => pointer.cast::<u64>().write_volatile(value),
        }
    }
}
