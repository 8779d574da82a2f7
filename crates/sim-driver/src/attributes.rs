//! Device attributes that decide nothing here and that programs read: `data/attributes.tsv`.

use std::ffi::c_int;

use pagewise_hal::{Backend, Code, DeviceAttribute, DeviceId};
use pagewise_sim::{GpuProfile, GridLimits};

use crate::driver::{Driver, Outcome, answer};

/// The table: see `data/README.md`.
const TABLE: &str = include_str!("../data/attributes.tsv");

/// The profile of the GPU that was recorded.
pub(crate) const RECORDED: &str = "h200";

/// The scope of values that all GPUs share.
const EVERY_GPU: &str = "every";

/// The attribute of a device: the simulator's answer, or else that of the recorded GPU.
pub(crate) fn attribute_of(driver: &Driver, device: c_int, number: c_int) -> Outcome<c_int> {
    let simulated = driver.sim.device_attribute(DeviceId(device), DeviceAttribute(number));
    match answer(simulated) {
        Err(Code::INVALID_VALUE) => attribute(driver, number),
        answered => answered,
    }
}

/// An attribute of the GPU. Those of a GPU that was not recorded are not known, unless all GPUs
/// share the value, the table has that of this GPU, or its profile says it: the answer is
/// `CUDA_ERROR_NOT_SUPPORTED`, and stderr names the attribute.
fn attribute(driver: &Driver, number: c_int) -> Outcome<c_int> {
    let rows = || TABLE.lines().skip(1).filter_map(parse).filter(|row| row.number == number);
    let is_known = rows().any(|row| row.since <= driver.options.version().0);
    if !is_known {
        return Err(Code::INVALID_VALUE);
    }
    let name = driver.options.gpu_name();
    let value = rows().find(|row| [EVERY_GPU, name].contains(&row.scope)).map(|row| row.value);
    match value.or_else(|| of_profile(driver.options.config().gpu(), number)) {
        Some(value) => Ok(value),
        None => driver.refuse_attribute(number),
    }
}

/// An attribute that follows from a profile.
fn of_profile(profile: &GpuProfile, number: c_int) -> Option<c_int> {
    let limits = GridLimits::of(profile);
    let value = match number {
        // The clock in kHz.
        13 => return Some((profile.kernels.clock_ghz * 1e6) as c_int),
        16 => limits.multiprocessors,
        39 => limits.threads,
        81 => limits.shared_bytes,
        97 => limits.block_shared_bytes,
        106 => limits.blocks,
        111 => limits.reserved_bytes,
        _ => return None,
    };
    c_int::try_from(value).ok()
}

/// One row of the table.
struct Row<'t> {
    number: c_int,
    since: c_int,
    /// The profile of the GPU that has the value.
    scope: &'t str,
    value: c_int,
}

fn parse(line: &str) -> Option<Row<'_>> {
    let mut fields = line.split('\t');
    Some(Row {
        number: fields.next()?.parse().ok()?,
        since: fields.next()?.parse().ok()?,
        scope: fields.next()?,
        value: fields.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        let rows: Vec<Row<'_>> =
            TABLE.lines().skip(1).map(|line| parse(line).expect(line)).collect();
        assert_eq!(rows.len(), 147 + 2 * 6);
        assert!(rows.is_sorted_by_key(|row| row.number));
        let of_h200 = rows.iter().filter(|row| [EVERY_GPU, RECORDED].contains(&row.scope));
        assert!(of_h200.is_sorted_by(|one, next| one.number < next.number));
    }

    #[test]
    fn the_profile_of_the_recorded_gpu_says_what_the_recording_says() {
        let profile = GpuProfile::h200();
        for number in [13, 16, 39, 81, 97, 106, 111] {
            let recorded = TABLE.lines().skip(1).filter_map(parse).find(|row| row.number == number);
            assert_eq!(of_profile(&profile, number), recorded.map(|row| row.value), "{number}");
        }
    }
}
