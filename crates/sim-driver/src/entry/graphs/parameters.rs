//! Parameters of nodes, as the driver takes them, and the tasks that they stand for.

use std::ffi::{c_int, c_void};

use pagewise_hal::{Backend, Code, DeviceId, EventHandle};

use crate::copy_params::Memcpy3D;
use crate::driver::{Driver, Outcome, has_place};
use crate::entry::events::{check_event, event};
use crate::entry::movement::gather;
use crate::entry::pools::{DEVICE, MemAccessDesc, MemPoolProps, NOWHERE, PINNED};
use crate::entry::span_is_live;
use crate::graph_memory::Wanted;
use crate::graphs::{Graphs, Task};
use crate::work::{HostNodeParams, MemsetParams};
use crate::work_checks;

/// `CUDA_MEM_ALLOC_NODE_PARAMS`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemAllocNodeParams {
    /// The properties of the memory.
    pub props: MemPoolProps,
    /// Devices with access, besides the one that has the memory.
    pub access: *const MemAccessDesc,
    /// How many there are.
    pub access_count: usize,
    /// The size in bytes.
    pub bytes: usize,
    /// The address, which the driver chooses.
    pub address: u64,
}

/// `CU_MEM_ALLOCATION_TYPE_MANAGED`
const MANAGED: c_int = 2;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
pub(super) const READ_WRITE: c_int = 3;

/// Refuses a context that does not exist. Null stands for the current one.
pub(super) fn check_context(driver: &Driver, context: *mut c_void) -> Outcome {
    if context.is_null() { Ok(()) } else { driver.live(context.addr()).map(drop) }
}

/// The task of a copy. Its memory must exist, or be of a graph.
pub(super) fn copy(driver: &Driver, graphs: &Graphs, copy: Memcpy3D) -> Outcome<Task> {
    if copy.is_empty() {
        return Err(Code::INVALID_VALUE);
    }
    work_checks::check_slices(driver, &copy, |start, bytes| graphs.memory.covers(start, bytes))?;
    Ok(Task::Copy(copy))
}

/// The task of a fill. Its memory must exist, or be of a graph.
pub(super) fn fill(driver: &Driver, graphs: &Graphs, fill: MemsetParams) -> Outcome<Task> {
    if ![1, 2, 4].contains(&fill.element_bytes) || fill.width == 0 || fill.height == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let (start, extent) = (fill.address, fill.extent()? as u64);
    if graphs.memory.covers(start, extent) || span_is_live(driver, start, extent) {
        return Ok(Task::Fill(fill));
    }
    Err(Code::INVALID_VALUE)
}

/// The task of a call of a function of the host.
pub(super) fn host(call: HostNodeParams) -> Outcome<Task> {
    if call.function.is_none() { Err(Code::INVALID_VALUE) } else { Ok(Task::Host(call)) }
}

/// An event of the caller. Null is an invalid value here, and a handle of nothing no handle.
pub(super) fn known_event(driver: &Driver, raw: *mut c_void) -> Outcome<EventHandle> {
    has_place(raw)?;
    check_event(driver, raw)?;
    Ok(event(raw))
}

/// The memory that a node allocates. Managed memory is the device's, as driver 580 answered.
///
/// # Safety
/// The array of places with access must be null or as long as it says.
pub(super) unsafe fn wanted_memory(
    driver: &Driver,
    params: &MemAllocNodeParams,
) -> Outcome<Wanted> {
    let MemAllocNodeParams { props, access, access_count, bytes, .. } = *params;
    if ![PINNED, MANAGED].contains(&props.allocation_type) {
        return Err(Code::INVALID_VALUE);
    }
    if props.handle_types != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    match (props.location.kind, props.allocation_type) {
        (DEVICE, _) => {}
        (NOWHERE, PINNED) => return Err(Code::INVALID_VALUE),
        _ => return Err(Code::NOT_SUPPORTED),
    }
    let device = |ordinal| {
        driver.handle_of(ordinal).map(|_| DeviceId(ordinal)).map_err(|_| Code::INVALID_VALUE)
    };
    let home = device(props.location.id)?;
    if access_count > 0 {
        has_place(access)?;
    }
    if access_count > driver.options.devices as usize {
        return Err(Code::INVALID_VALUE);
    }
    let wanted = gather(access_count, |index| {
        // SAFETY: `access` is not null, so by this function's contract it has as many items, and
        // `index` is below their number. Items are integers, of which every bit pattern is a value.
        unsafe { access.wrapping_add(index).read_unaligned() }
    })?;
    let mut peers = Vec::new();
    for MemAccessDesc { location, flags } in wanted {
        let peer = device(location.id)?;
        if location.kind != DEVICE || flags != READ_WRITE {
            return Err(Code::INVALID_VALUE);
        }
        let reaches = peer == home || driver.sim.can_access_peer(peer, home) == Ok(true);
        if !reaches {
            return Err(Code::INVALID_VALUE);
        }
        if peer != home && !peers.contains(&peer) {
            peers.push(peer);
        }
    }
    Ok(Wanted { device: home, kind: props.allocation_type, peers, bytes: bytes as u64 })
}
