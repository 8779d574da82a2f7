//! What values make sense.

use std::fmt::Display;

use pagewise_hal::{BLOCK_BYTES, DriverVersion};
use toml::Value;

use super::{GpuProfile, ProfileError};
use crate::arrival::ArrivalParams;
use crate::paging::PagingParams;

type Checked = Result<(), ProfileError>;

pub(super) fn check(profile: &GpuProfile) -> Checked {
    identity(profile)?;
    memory(profile)?;
    paging(&profile.paging)?;
    arrival(&profile.arrival)?;
    costs(profile)?;
    match profile.sources.malformed() {
        None => Ok(()),
        Some(field) => {
            let field = format!("sources.\"{field}\"");
            refuse(&field, "no source", "begin with calibrated:, published:, given: or guess:")
        }
    }
}

fn refuse(field: &str, value: impl Display, remedy: &str) -> Checked {
    Err(ProfileError::Value {
        field: field.to_owned(),
        value: value.to_string(),
        remedy: remedy.to_owned(),
    })
}

fn within(field: &str, value: u64, least: u64, most: u64) -> Checked {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    refuse(field, value, &format!("give {least} to {most}"))
}

fn identity(profile: &GpuProfile) -> Checked {
    if profile.name.is_empty() {
        return refuse("name", "empty", "give the profile a name");
    }
    let (major, minor) = profile.compute_capability;
    if major < 1 || minor < 0 {
        let value = format!("{major}.{minor}");
        return refuse("compute_capability", value, "give [major, minor], such as [9, 0]");
    }
    let version = profile.driver_version;
    if version < DriverVersion::CUDA_12_0 {
        let remedy = "give CUDA 12.0 (12000) or later: 1000 × major + 10 × minor";
        return refuse("driver_version", version.0, remedy);
    }
    Ok(())
}

fn memory(profile: &GpuProfile) -> Checked {
    let GpuProfile { memory_bytes, context_bytes, .. } = *profile;
    // What TOML can express, and sums of which fit.
    const MOST: u64 = 1 << 62;
    within("memory_bytes", memory_bytes, 2 * BLOCK_BYTES, MOST)?;
    if context_bytes > memory_bytes - BLOCK_BYTES {
        let remedy = "give less: at least 2 MiB of memory_bytes are for allocations";
        return refuse("context_bytes", context_bytes, remedy);
    }
    Ok(())
}

/// The longest time in a profile, one day: more is a wrong unit, and sums of these fit.
const DURATION_MAX_NS: u64 = 86_400_000_000_000;
/// Each is a record of every throttled fault.
const THROTTLED_BATCHES_MAX: u64 = 256;

/// The bounds are those of the driver's module parameters (uvm_policy 3, 4), where it has some.
fn paging(params: &PagingParams) -> Checked {
    let threshold = u64::from(params.prefetch_threshold_percent);
    within("paging.prefetch_threshold_percent", threshold, 0, 100)?;
    within("paging.prefetch_min_faults", params.prefetch_min_faults.into(), 1, 20)?;
    let counters = u64::from(params.access_counters.threshold);
    within("paging.access_counters.threshold", counters, 1, 65_535)?;
    let thrashing = &params.thrashing;
    within("paging.thrashing.threshold", thrashing.threshold.into(), 1, 7)?;
    within("paging.thrashing.pin_threshold", thrashing.pin_threshold.into(), 1, 255)?;
    within("paging.thrashing.stamp_ns", thrashing.stamp_ns, 1, DURATION_MAX_NS)?;
    let batches = u64::from(params.throttled_batches_per_service);
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

fn arrival(params: &ArrivalParams) -> Checked {
    // More of anything than a GPU has, so that a wrong unit shows.
    const MANY: u64 = 65_536;
    let counts = [
        ("multiprocessors", params.multiprocessors),
        ("threads_per_multiprocessor", params.threads_per_multiprocessor),
        ("blocks_per_multiprocessor", params.blocks_per_multiprocessor),
        ("batch_faults", params.batch_faults),
        ("sectors_per_multiprocessor", params.sectors_per_multiprocessor),
        ("bulk.threads", params.bulk.threads),
        ("bulk.bytes_per_access", params.bulk.bytes_per_access),
        ("bulk.parts", params.bulk.parts),
    ];
    for (name, count) in counts {
        within(&format!("arrival.{name}"), count.into(), 1, MANY)?;
    }
    let durations = [
        ("wave_ns", params.wave_ns),
        ("fault_ns", params.fault_ns),
        ("spread_ns", params.spread_ns),
        ("reads_after_ns", params.reads_after_ns),
        ("reads_late_after_ns", params.reads_late_after_ns),
        ("service_block_ns", params.service_block_ns),
    ];
    for (name, duration_ns) in durations {
        within(&format!("arrival.{name}"), duration_ns, 0, DURATION_MAX_NS)?;
    }
    within("arrival.drop_all_percent", params.drop_all_percent.into(), 0, 100)
}

fn costs(profile: &GpuProfile) -> Checked {
    let figures = Value::try_from(profile.cost)
        .map_err(|error| ProfileError::Document(format!("cost: {error}")))?;
    figures_of("cost", &figures)?;
    let gap = profile.cost.device_touch.fault_gap;
    if gap <= 0.0 {
        return refuse("cost.device_touch.fault_gap", gap, "give more than 0 ns");
    }
    Ok(())
}

/// Every figure of a table is a number of nanoseconds, no more than a day.
fn figures_of(name: &str, value: &Value) -> Checked {
    match value {
        Value::Table(table) => {
            table.iter().try_for_each(|(key, inner)| figures_of(&format!("{name}.{key}"), inner))
        }
        Value::Array(items) => items.iter().try_for_each(|item| figures_of(name, item)),
        Value::Float(figure) if (0.0..=DURATION_MAX_NS as f64).contains(figure) => Ok(()),
        other => refuse(name, other, "give nanoseconds, 0 or more, and less than a day"),
    }
}
