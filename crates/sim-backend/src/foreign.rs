//! Memory of other processes, mapped at addresses of this machine: it comes and goes here.
//!
//! The modules of the calls that open it (`sharing`, `ipc`) know what it is.

use std::ops::Range;

use pagewise_hal::{BLOCK_BYTES, DevicePtr, PAGE_BYTES};

use crate::arena::NO_ADDRESSES;
use crate::refusal::{Checked, out_of_memory};
use crate::shared::{Foreign, Origin};
use crate::shared_memory::SharedFile;
use crate::sim::Sim;
use crate::space::MemoryKind;

/// Bytes of a file that are to be mapped: whole pages one after the other, and where the memory
/// begins in them and ends.
pub(crate) struct Bytes<'f> {
    pub(crate) file: &'f SharedFile,
    pub(crate) parts: &'f [Range<u64>],
    /// The first byte, counted from a multiple of 2 MiB of the exporter's addresses.
    pub(crate) first: u64,
    pub(crate) bytes: u64,
}

impl Sim {
    /// Maps memory of another process. Returns its address.
    pub(crate) fn enter_foreign(
        &mut self,
        memory: &Bytes<'_>,
        kind: MemoryKind,
        origin: Origin,
    ) -> Checked<DevicePtr> {
        let lead = memory.first % BLOCK_BYTES;
        let Some(addresses) = self.space.take_foreign(&mut self.arena, lead + memory.bytes) else {
            return out_of_memory(NO_ADDRESSES);
        };
        let start = addresses.start + lead;
        let mut next = start / PAGE_BYTES * PAGE_BYTES;
        for part in memory.parts {
            let here = next..next + (part.end - part.start);
            next = here.end;
            if self.arena.share(&here, memory.file, part.start).is_err() {
                self.arena.reclaim(&addresses);
                self.space.give_foreign(&addresses);
                return out_of_memory("the process has no room for another mapping");
            }
        }
        self.space.enter(start, memory.bytes, kind);
        self.sharing.foreign.insert(start, Foreign { origin, addresses });
        Ok(DevicePtr(start))
    }

    /// Unmaps memory of another process. Returns where it came from; `None` if the address is not
    /// its first byte.
    pub(crate) fn leave_foreign(&mut self, ptr: DevicePtr) -> Option<Origin> {
        let Foreign { origin, addresses } = self.sharing.foreign.remove(&ptr.0)?;
        if let Some(&allocation) = self.space.starting(ptr) {
            self.space.remove(&allocation);
        }
        self.arena.reclaim(&addresses);
        self.space.give_foreign(&addresses);
        Some(origin)
    }
}
