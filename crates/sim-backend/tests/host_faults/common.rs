//! A machine for each mechanism, and raw accesses.

use pagewise_hal::{DeviceAccess, DeviceId, DeviceTouch, Span};
use pagewise_sim::{HostFaultMechanism, HostFaults, SimBackend, SimConfig, host_fault_support};

pub(crate) const DEVICE: DeviceId = DeviceId(0);
pub(crate) const PAGE: u64 = 4096;

/// The mechanisms that this host has. The other one is named in the output.
pub(crate) fn mechanisms() -> Vec<HostFaults> {
    let mut found = vec![HostFaults::PageProtection];
    match SimBackend::new(SimConfig::h200().host_faults(HostFaults::Userfaultfd)) {
        Ok(_) => found.push(HostFaults::Userfaultfd),
        Err(error) => println!("partly skipped: {error}"),
    }
    found
}

/// Whether system calls with hidden pages work.
pub(crate) fn serves_system_calls(faults: HostFaults) -> bool {
    let support = host_fault_support();
    faults == HostFaults::Userfaultfd
        && support.mechanism == Some(HostFaultMechanism::Userfaultfd)
        && support.system_calls
}

/// Runs a claim with each mechanism.
pub(crate) fn with_each(claim: impl Fn(SimConfig, HostFaults)) {
    for faults in mechanisms() {
        println!("by {faults:?}");
        claim(SimConfig::h200().host_faults(faults), faults);
    }
}

pub(crate) fn machine(config: SimConfig) -> SimBackend {
    SimBackend::new(config).expect("a machine")
}

/// Reads a byte as a program does.
pub(crate) fn peek(address: u64) -> u8 {
    let place = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: tests read memory of live allocations, or memory that ends the process.
    unsafe { place.read_volatile() }
}

/// Writes a byte as a program does.
pub(crate) fn poke(address: u64, value: u8) {
    let place = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: tests write memory of live allocations, or memory that ends the process.
    unsafe { place.write_volatile(value) }
}

/// One thread of the device accesses a byte of each page.
pub(crate) fn device(sim: &SimBackend, span: Span, access: DeviceAccess) -> u64 {
    use pagewise_hal::{Backend, StreamHandle};
    let (stride_bytes, blocks, threads) = (PAGE, 1, 1);
    let touch = DeviceTouch { device: DEVICE, span, stride_bytes, access, blocks, threads };
    // SAFETY: no other code uses the range meanwhile.
    unsafe { sim.device_touch(touch, StreamHandle::PER_THREAD) }.expect("a device access")
}
