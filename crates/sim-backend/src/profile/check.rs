//! The bounds of a profile's values.
//!
//! Each bound is wider than any hardware or driver by a multiple, so that it refuses no machine that
//! may come, and shows a wrong unit. Within the bounds no sum of figures overflows, and no figure
//! makes a machine take memory or time that its program does not explain.

use std::fmt::Display;

use pagewise_hal::{BLOCK_BYTES, DriverVersion};
use toml::Value;

use super::error::ProfileError;
use super::gpu::GpuProfile;
use crate::arena::Arena;
use crate::arrival::{ArrivalParams, ReadingParams};
use crate::kernel_time::KernelParams;
use crate::link::{HostLink, PeerLink};
use crate::paging::PagingParams;

type Verdict = Result<(), ProfileError>;

pub(super) fn check(profile: &GpuProfile) -> Verdict {
    identity(profile)?;
    memory(profile)?;
    links(profile)?;
    attributes(profile)?;
    paging(&profile.paging)?;
    arrival(&profile.arrival)?;
    kernels(&profile.kernels)?;
    costs(profile)?;
    match profile.sources.malformed() {
        None => Ok(()),
        Some(field) => {
            let field = format!("sources.\"{field}\"");
            refuse(
                &field,
                "no source",
                "begin with calibrated:, published:, derived:, given: or guess:",
            )
        }
    }
}

fn refuse(field: &str, value: impl Display, remedy: &str) -> Verdict {
    Err(ProfileError::Value {
        field: field.to_owned(),
        value: value.to_string(),
        remedy: remedy.to_owned(),
    })
}

fn within<T: PartialOrd + Display>(field: &str, value: T, least: T, most: T) -> Verdict {
    if (&least..=&most).contains(&&value) {
        return Ok(());
    }
    refuse(field, value, &format!("give {least} to {most}"))
}

/// Longer text is no name.
const NAME_BYTES_MAX: usize = 256;
const DESCRIPTION_BYTES_MAX: usize = 4096;

fn identity(profile: &GpuProfile) -> Verdict {
    if profile.name.is_empty() {
        return refuse("name", "empty", "give the profile a name");
    }
    let texts = [
        ("name", &profile.name, NAME_BYTES_MAX),
        ("description", &profile.description, DESCRIPTION_BYTES_MAX),
    ];
    for (field, text, most) in texts {
        if text.len() > most {
            let value = format!("{} bytes long", text.len());
            return refuse(field, value, &format!("give at most {most} bytes"));
        }
    }
    let (major, minor) = profile.compute_capability;
    if !(1..=99).contains(&major) || !(0..=99).contains(&minor) {
        let value = format!("{major}.{minor}");
        let remedy = "give [major, minor], such as [9, 0]: major 1 to 99, minor 0 to 99";
        return refuse("compute_capability", value, remedy);
    }
    let version = profile.driver_version;
    if !(DriverVersion::CUDA_12_0..=DriverVersion(99_990)).contains(&version) {
        let remedy = "give CUDA 12.0 (12000) to 99.9 (99990): 1000 × major + 10 × minor";
        return refuse("driver_version", version.0, remedy);
    }
    Ok(())
}

fn memory(profile: &GpuProfile) -> Verdict {
    let GpuProfile { memory_bytes, context_bytes, .. } = *profile;
    // A machine has addresses for no more.
    within("memory_bytes", memory_bytes, 2 * BLOCK_BYTES, Arena::ZONE_BYTES_MAX)?;
    let most = memory_bytes - BLOCK_BYTES;
    if context_bytes > most {
        let remedy =
            format!("give at most {most}: at least 2 MiB of memory_bytes are for allocations");
        return refuse("context_bytes", context_bytes, &remedy);
    }
    Ok(())
}

/// PCI Express has seven, NVLink five.
const GENERATION_MAX: u8 = 32;
/// The most that PCI Express defines.
const LANES_MAX: u8 = 32;

fn links(profile: &GpuProfile) -> Verdict {
    if let HostLink::Pcie { generation, lanes } = profile.host_link {
        within("host_link.generation", generation, 1, GENERATION_MAX)?;
        within("host_link.lanes", lanes, 1, LANES_MAX)?;
    }
    match profile.peer_link {
        PeerLink::None => Ok(()),
        PeerLink::Nvlink { generation } => {
            within("peer_link.generation", generation, 1, GENERATION_MAX)
        }
    }
}

fn attributes(profile: &GpuProfile) -> Verdict {
    // Four kinds of handles have a bit today.
    let kinds = profile.attributes.mempool_supported_handle_types;
    within("attributes.mempool_supported_handle_types", kinds, 0, 255)?;
    // Linux knows at most 1024 nodes.
    within("attributes.host_numa_id", profile.attributes.host_numa_id, -1, 1023)
}

/// The longest time in a profile, 10 s: the longest that ships is a second.
const DURATION_MAX_NS: u64 = 10_000_000_000;
/// The slowest copy or access, 1 MB/s, in nanoseconds for each byte.
const BYTE_MAX_NS: u64 = 1000;
/// Each is a record of every throttled fault.
const THROTTLED_BATCHES_MAX: u32 = 256;

/// The bounds are those of the driver's module parameters, where it has some: `uvm_perf_prefetch.c`
/// and `uvm_perf_thrashing.c`.
fn paging(params: &PagingParams) -> Verdict {
    within("paging.prefetch_threshold_percent", params.prefetch_threshold_percent, 0, 100)?;
    within("paging.prefetch_min_faults", params.prefetch_min_faults, 1, 20)?;
    within("paging.access_counters.threshold", params.access_counters.threshold, 1, 65_535)?;
    let thrashing = &params.thrashing;
    within("paging.thrashing.threshold", thrashing.threshold, 1, 7)?;
    within("paging.thrashing.pin_threshold", thrashing.pin_threshold, 1, 255)?;
    within("paging.thrashing.stamp_ns", thrashing.stamp_ns, 1, DURATION_MAX_NS)?;
    let batches = params.throttled_batches_per_service;
    within("paging.throttled_batches_per_service", batches, 0, THROTTLED_BATCHES_MAX)?;
    let durations = [
        ("lapse_ns", thrashing.lapse_ns),
        ("nap_ns", thrashing.nap_ns),
        ("epoch_ns", thrashing.epoch_ns),
        ("pin_ns", thrashing.pin_ns),
        ("lapse_min_ns", thrashing.lapse_min_ns),
        ("lapse_max_ns", thrashing.lapse_max_ns),
        ("unpin_slack_ns", thrashing.unpin_slack_ns),
    ];
    for (name, duration_ns) in durations {
        within(&format!("paging.thrashing.{name}"), duration_ns, 0, DURATION_MAX_NS)?;
    }
    let (least, most) = (thrashing.lapse_min_ns, thrashing.lapse_max_ns);
    if least > most {
        let remedy = "give at most paging.thrashing.lapse_max_ns";
        return refuse("paging.thrashing.lapse_min_ns", least, remedy);
    }
    Ok(())
}

fn kernels(params: &KernelParams) -> Verdict {
    // No multiprocessor issues more than a few instructions of warps in a clock; the slowest unit
    // takes 64 clocks for one.
    let rates = [
        ("clock_ghz", params.clock_ghz, 0.01, 100.0),
        ("issue", params.issue, 0.001, 1000.0),
        ("fp32", params.fp32, 0.001, 1000.0),
        ("fp64", params.fp64, 0.001, 1000.0),
        ("integer", params.integer, 0.001, 1000.0),
        ("special", params.special, 0.001, 1000.0),
        ("memory", params.memory, 0.001, 1000.0),
        ("shared", params.shared, 0.001, 1000.0),
        ("tensor", params.tensor, 0.001, 1000.0),
        ("control", params.control, 0.001, 1000.0),
        ("bytes_per_ns", params.bytes_per_ns, 1.0, 1_000_000.0),
        ("block_ns", params.block_ns, 0.0, 1000.0),
        ("access_ns", params.access_ns, 0.0, 100_000.0),
        ("instruction_ns", params.instruction_ns, 0.0, 100_000.0),
    ];
    for (name, rate, least, most) in rates {
        within(&format!("kernels.{name}"), rate, least, most)?;
    }
    Ok(())
}

fn arrival(params: &ArrivalParams) -> Verdict {
    let (fills, copies) = (&params.fills, &params.copies);
    let [first, second] = params.wave_slots;
    // An H200 has 132 multiprocessors of 2048 threads and 32 blocks, and its driver reads batches of
    // 256 faults; 14 sectors and 4 or 5 faults at once were fitted to it. A block has at most 1024
    // threads, a thread accesses 16 bytes at once, and a va_block has 512 pages.
    let counts = [
        ("multiprocessors", params.multiprocessors, 1, 4096),
        ("threads_per_multiprocessor", params.threads_per_multiprocessor, 1, 16_384),
        ("blocks_per_multiprocessor", params.blocks_per_multiprocessor, 1, 1024),
        ("batch_faults", params.batch_faults, 1, 16_384),
        ("sectors_per_multiprocessor", params.sectors_per_multiprocessor, 1, 4096),
        ("wave_slots[0]", first, 0, 16_384),
        ("wave_slots[1]", second, 0, 16_384),
        ("page_writes", params.page_writes, 1, 1024),
        ("fills.threads", fills.threads, 1, 1024),
        ("fills.bytes_per_access", fills.bytes_per_access, 1, 256),
        ("fills.parts", fills.parts, 1, 1024),
        ("copies.threads", copies.threads, 1, 1024),
        ("copies.bytes_per_access", copies.bytes_per_access, 1, 256),
        ("copies.parts", copies.parts, 1, 1024),
        ("drop_all_percent", params.drop_all_percent, 0, 100),
    ];
    for (name, count, least, most) in counts {
        within(&format!("arrival.{name}"), count, least, most)?;
    }
    let durations = [
        ("wave_ns", params.wave_ns),
        ("fault_ns", params.fault_ns),
        ("write_ns", params.write_ns),
        ("service_block_ns", params.service_block_ns),
    ];
    for (name, duration_ns) in durations {
        within(&format!("arrival.{name}"), duration_ns, 0, DURATION_MAX_NS)?;
    }
    reading("arrival", &params.declared())?;
    reading("arrival.executed", &params.executed)?;
    Ok(())
}

fn reading(table: &str, params: &ReadingParams) -> Verdict {
    let bounded = |name: &str, duration_ns| {
        within(&format!("{table}.{name}"), duration_ns, 0, DURATION_MAX_NS)
    };
    bounded("spread_ns", params.spread_ns)?;
    for (at, walk_ns) in params.walk_ns.into_iter().enumerate() {
        bounded(&format!("walk_ns[{at}]"), walk_ns)?;
    }
    bounded("reads_late_after_ns", params.reads_late_after_ns)
}

fn costs(profile: &GpuProfile) -> Verdict {
    let figures = Value::try_from(profile.cost)
        .map_err(|error| ProfileError::Document(format!("cost: {error}")))?;
    figures_of("cost", &figures)?;
    let gap = profile.cost.device_touch.fault_gap;
    if gap <= 0.0 {
        return refuse("cost.device_touch.fault_gap", gap, "give more than 0 ns");
    }
    Ok(())
}

/// Every figure of a table is a number of nanoseconds within its bound.
fn figures_of(name: &str, value: &Value) -> Verdict {
    let most = if name.ends_with("_byte") { BYTE_MAX_NS } else { DURATION_MAX_NS };
    match value {
        Value::Table(table) => {
            table.iter().try_for_each(|(key, inner)| figures_of(&format!("{name}.{key}"), inner))
        }
        Value::Array(items) => items.iter().try_for_each(|item| figures_of(name, item)),
        Value::Float(figure) if (0.0..=most as f64).contains(figure) => Ok(()),
        other => refuse(name, other, &format!("give nanoseconds, 0 to {most}")),
    }
}
