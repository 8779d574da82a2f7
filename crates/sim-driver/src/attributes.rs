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

/// An attribute of the GPU: the value that all GPUs share, that of the table for this GPU, or one that
/// its profile says. What a profile does not say is as on the H200, as in the profiles themselves:
/// stderr names the attribute.
fn attribute(driver: &Driver, number: c_int) -> Outcome<c_int> {
    let rows = || TABLE.lines().skip(1).filter_map(parse).filter(|row| row.number == number);
    let name = driver.options.gpu_name();
    let of = |scopes: &[&str]| rows().find(|row| scopes.contains(&row.scope));
    let recorded = of(&[EVERY_GPU, RECORDED]).ok_or(Code::INVALID_VALUE)?;
    if recorded.since > driver.options.version().0 {
        return Err(Code::INVALID_VALUE);
    }
    let known = of(&[EVERY_GPU, name]).map(|row| row.value);
    Ok(known.or_else(|| of_profile(driver.options.config().gpu(), number)).unwrap_or_else(|| {
        driver.note_guess(number);
        recorded.value
    }))
}

/// An attribute that follows from a profile.
fn of_profile(profile: &GpuProfile, number: c_int) -> Option<c_int> {
    let limits = GridLimits::of(profile);
    let is_hopper = profile.compute_capability.0 >= 9;
    let value = match number {
        // Launches of clusters, tensor maps, and multicast memory came with compute capability 9.0.
        120 | 127 | 132 if !is_hopper => 0,
        // Domains of memory synchronisation.
        126 if !is_hopper => 1,
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

    #[test]
    fn other_gpus_answer_every_attribute_and_their_own_where_that_is_known() {
        for name in ["a100", "gh200", "gtx1080ti", "l4", "rtx4060ti-16gb", "v100", "wsl"] {
            let options = format!("profile={name} log=off").parse().expect("options");
            let driver = Driver::new(options).expect("a driver");
            let of = |number| attribute_of(&driver, 0, number);
            let version = driver.options.version().0;
            for row in TABLE.lines().skip(1).filter_map(parse).filter(|row| row.since <= version) {
                assert!(of(row.number).is_ok(), "{name}: {}", row.number);
            }
            if name == "a100" {
                // The clocks, multiprocessors, shared memory of a block, clusters and compute mode.
                let found = [13, 36, 16, 97, 120, 20].map(of);
                let expected = [1_410_000, 1_593_000, 108, 166_912, 0, 0];
                assert_eq!(found, expected.map(Ok));
            }
        }
    }
}
