//! The choice of the machine that is attacked.

use pagewise_hal::DriverVersion;
use pagewise_sim::{
    DiscardedContents, EventCapture, GpuProfile, MemoryContents, RangeReads, SimConfig,
};

use crate::Choices;

/// Most usable memory of a device: small enough that rounds fill it.
const SMALL_BYTES: u64 = 64 << 20;

/// A machine of any profile and configuration; sometimes one that cannot be.
pub(super) fn config(choices: &mut Choices<'_>) -> SimConfig {
    let profiles = GpuProfile::all();
    let mut gpu = profiles[choices.below(profiles.len() as u64) as usize].clone();
    if choices.chance(1, 3) {
        gpu.memory_bytes = gpu.context_bytes + (4 << 20) + choices.below(SMALL_BYTES);
    }
    if choices.chance(1, 4) {
        gpu.paging.thrashing.stamp_ns = 1 << choices.below(20);
        gpu.paging.thrashing.nap_ns = 1 << choices.below(30);
    }
    let devices = choices.one_of(&[1, 1, 1, 1, 2, 2, 3, 8, 32, 0, 33]);
    let versions = [13_000, 13_000, 13_020, 12_080, 12_020, 12_000, 11_080];
    SimConfig::new(gpu)
        .devices(devices)
        .host_numa_nodes(choices.one_of(&[1, 1, 2, 0, u32::MAX]))
        .driver_version(DriverVersion(choices.one_of(&versions)))
        .range_reads(choices.one_of(&[RangeReads::Pages, RangeReads::Driver]))
        .discarded_contents(choices.one_of(&[DiscardedContents::Kept, DiscardedContents::Driver]))
        .contents(choices.one_of(&[
            MemoryContents::Real,
            MemoryContents::Described,
            MemoryContents::Skipped,
        ]))
        .events(match choices.below(4) {
            0 => EventCapture::Off,
            1 => EventCapture::Ring { capacity: choices.below(3) as usize },
            2 => EventCapture::Ring { capacity: usize::MAX },
            _ => EventCapture::Ring { capacity: 1 << 10 },
        })
        .seed(choices.number())
}
