//! Device attributes that decide nothing here and that programs read: `data/attributes.tsv`.

use std::ffi::c_int;

use pagewise_hal::{Backend, Code, DeviceAttribute, DeviceId};

use crate::driver::{Driver, Outcome, answer};

/// The table: see `data/README.md`.
const TABLE: &str = include_str!("../data/attributes.tsv");

/// The profile of the GPU that was recorded.
pub(crate) const RECORDED: &str = "h200";

/// The attribute of a device: the simulator's answer, or else that of the recorded GPU.
pub(crate) fn attribute_of(driver: &Driver, device: c_int, number: c_int) -> Outcome<c_int> {
    let simulated = driver.sim.device_attribute(DeviceId(device), DeviceAttribute(number));
    match answer(simulated) {
        Err(Code::INVALID_VALUE) => attribute(driver, number),
        answered => answered,
    }
}

/// An attribute of the GPU. Those of a GPU that was not recorded are not known, unless all GPUs
/// share the value: the answer is `CUDA_ERROR_NOT_SUPPORTED`, and stderr names the attribute.
fn attribute(driver: &Driver, number: c_int) -> Outcome<c_int> {
    let rows = TABLE.lines().skip(1).filter_map(parse);
    let row = rows.into_iter().find(|row| row.number == number);
    let row = row.filter(|row| row.since <= driver.options.version().0);
    let row = row.ok_or(Code::INVALID_VALUE)?;
    if row.of_every_gpu || driver.options.gpu_name() == RECORDED {
        Ok(row.value)
    } else {
        driver.refuse_attribute(number)
    }
}

/// One row of the table.
struct Row {
    number: c_int,
    since: c_int,
    of_every_gpu: bool,
    value: c_int,
}

fn parse(line: &str) -> Option<Row> {
    let mut fields = line.split('\t');
    Some(Row {
        number: fields.next()?.parse().ok()?,
        since: fields.next()?.parse().ok()?,
        of_every_gpu: fields.next()? == "every",
        value: fields.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        let rows: Vec<Row> = TABLE.lines().skip(1).map(|line| parse(line).expect(line)).collect();
        assert_eq!(rows.len(), 147);
        assert!(rows.is_sorted_by(|one, next| one.number < next.number));
    }
}
