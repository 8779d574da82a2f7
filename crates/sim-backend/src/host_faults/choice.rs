//! The choice of a mechanism, and its reasons.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use pagewise_hal::PAGE_BYTES;

use super::double_map::{Accessed, DoubleMap};
use super::fault::Shown;
use super::gate::Gate;
use super::sys;
use super::userfaultfd::Source;
use crate::config::{HostFaultMechanism, HostFaultSupport, HostFaults};

/// The steps by which a user gets userfaultfd.
const GET_USERFAULTFD: &str = "set vm.unprivileged_userfaultfd to 1, give the process \
    CAP_SYS_PTRACE, or let it open /dev/userfaultfd; Linux 6.4 or later is needed (6.10 on \
    aarch64), and a container needs a seccomp profile that admits the call";

/// The mechanism that a machine with [`HostFaults::Real`] gets on this host, and why.
#[must_use]
pub fn support() -> HostFaultSupport {
    match open(HostFaults::Real) {
        Ok((_, support)) => support,
        Err(why) => HostFaultSupport { mechanism: None, system_calls: false, why },
    }
}

/// Opens the gate of a machine; or says why not, and what to do.
pub(crate) fn open(wanted: HostFaults) -> Result<(Arc<Gate>, HostFaultSupport), String> {
    if sys::page_bytes() != PAGE_BYTES {
        return Err(format!(
            "pages of this host have {} bytes and those of managed memory {PAGE_BYTES}: only \
             declared host accesses are possible here (HostFaults::Declared)",
            sys::page_bytes()
        ));
    }
    match wanted {
        HostFaults::Userfaultfd => by_userfaultfd().map_err(|refused| {
            format!("{refused}: {GET_USERFAULTFD}; or let the host choose (HostFaults::Real)")
        }),
        HostFaults::PageProtection => by_protection("it was asked for".to_string()),
        HostFaults::Real | HostFaults::Declared => by_userfaultfd().or_else(by_protection),
    }
}

fn by_userfaultfd() -> Result<(Arc<Gate>, HostFaultSupport), String> {
    let refused = |errors: [io::Error; 3]| {
        let [call, device, user] = errors;
        format!(
            "userfaultfd is refused (the call: {call}; /dev/userfaultfd: {device}; for user mode \
             only: {user})"
        )
    };
    let gate = Arc::new(Gate::by_userfaultfd().map_err(refused)?);
    try_out(&gate).map_err(|error| format!("userfaultfd lacks what is needed ({error})"))?;
    let source = match gate.source() {
        Some(Source::Call) => "the kernel admits the call",
        Some(Source::Device) => "/dev/userfaultfd is open to this process",
        _ => {
            "the kernel admits the call for accesses of the program alone: a system call with a \
             hidden page fails with EFAULT"
        }
    };
    Ok(supported(gate, HostFaultMechanism::Userfaultfd, source))
}

fn by_protection(why: String) -> Result<(Arc<Gate>, HostFaultSupport), String> {
    let refused = |error: &dyn Display| {
        format!("{why}; and page protection is refused ({error}): use HostFaults::Declared")
    };
    let gate = Arc::new(Gate::by_protection().map_err(|error| refused(&error))?);
    try_out(&gate).map_err(|error| refused(&error))?;
    Ok(supported(gate, HostFaultMechanism::PageProtection, &why))
}

fn supported(
    gate: Arc<Gate>,
    mechanism: HostFaultMechanism,
    why: &str,
) -> (Arc<Gate>, HostFaultSupport) {
    let system_calls = gate.serves_system_calls();
    let support =
        HostFaultSupport { mechanism: Some(mechanism), system_calls, why: why.to_string() };
    (gate, support)
}

/// Does everything that a machine will ask of the gate, on memory of its own.
fn try_out(gate: &Arc<Gate>) -> io::Result<()> {
    let map = DoubleMap::new(gate, 2 * PAGE_BYTES, PAGE_BYTES, Accessed::ByBoth)?;
    let view = map.view();
    map.populate(&view)?;
    gate.show(&view, Shown::Read)?;
    gate.allow_writes(&view)?;
    gate.write_protect(&view);
    gate.hide(&view);
    gate.show(&view, Shown::Write)?;
    map.clear(&view)
}
