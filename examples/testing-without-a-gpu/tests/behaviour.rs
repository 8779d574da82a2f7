//! Claims about the table, the same on the simulator and, with `--features cuda`, on the driver.
//! Claims about faults and moved bytes are made of the simulator only, which alone counts them.

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{
    Code, Device, Machine, Place, Result, assert_faults, assert_migrated_bytes, assert_no_thrashing,
};
use pagewise_example_testing::{Kept, Table};

const ENTRIES: usize = 1 << 19;
const BYTES: u64 = 4 << 19;

fn sim() -> Result<Machine> {
    Ok(Machine::from(pagewise::sim()?))
}

/// A claim about contents and advice: true on every machine.
fn sums_what_the_host_wrote(machine: &Machine) -> Result<()> {
    let mut table = Table::new(machine, Device::FIRST, &[1, 2, 3])?;
    assert_eq!(table.warm_up()?, Kept::OnDevice);
    assert!(table.entries().read_mostly()?);
    table.set(1, 0x0101)?;
    assert_eq!(table.checksum()?, 1 + 2 + 3);
    assert!(table.set(3, 1).is_err());
    Ok(())
}

#[test]
fn the_table_sums_what_the_host_wrote() -> Result<()> {
    sums_what_the_host_wrote(&sim()?)
}

#[test]
#[cfg(feature = "cuda")]
fn the_table_sums_what_the_host_wrote_on_the_driver() -> Result<()> {
    match pagewise::CudaBackend::open() {
        Ok(driver) => sums_what_the_host_wrote(&Machine::from(Arc::new(driver))),
        // Without a GPU there is nothing to claim, and it is said so.
        Err(error) if std::env::var_os("REQUIRE_CUDA").is_none_or(|value| value != "1") => {
            println!("skipped: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[test]
fn a_warm_table_is_read_without_a_fault_until_the_host_writes() -> Result<()> {
    let machine = sim()?;
    let mut table = Table::new(&machine, Device::FIRST, &[1; ENTRIES])?;
    assert_migrated_bytes!(machine, BYTES, table.warm_up()?);
    assert_faults!(machine, 0, table.checksum()?);
    // Writing one entry collapses the copies of its page, and of nothing else.
    table.set(0, 7)?;
    assert_migrated_bytes!(machine, ..=4096, table.checksum()?);
    assert_no_thrashing!(machine, table.warm_up()?);
    Ok(())
}

#[test]
fn a_full_device_reads_the_table_on_the_host() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let mut table = Table::new(&machine, Device::FIRST, &[1; 100])?;
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::Prefetch));
    assert_eq!(table.warm_up()?, Kept::OnHost);
    assert_eq!(table.entries().preferred_location()?, Some(Place::HOST));
    assert!(table.entries().accessed_by().contains(Device::FIRST)?);
    assert_eq!(table.checksum()?, 100);
    Ok(())
}
