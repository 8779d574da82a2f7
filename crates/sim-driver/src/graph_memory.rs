//! Memory of graphs on the simulated machine: addresses are reserved when a node is made, and
//! physical memory is mapped by the first launch.

use std::ffi::c_int;

use pagewise_hal::{
    AccessFlags, AllocationType, Backend, Code, DeviceId, DevicePtr, HandleTypes, Location,
    MemoryAccess, MemoryHandle, MemoryProps, Span,
};

use crate::driver::{Driver, Outcome, answer};
use crate::graphs::{Allocation, BLOCK_BYTES, Graphs, Task, Unmapped};

/// The memory that a node allocates.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The device that has it.
    pub(crate) device: DeviceId,
    /// The kind, as `CUmemAllocationType` numbers it. It changes nothing but the answer about it.
    pub(crate) kind: c_int,
    /// Other devices with access.
    pub(crate) peers: Vec<DeviceId>,
    pub(crate) bytes: u64,
}

/// Makes a node that allocates memory, and gives the node and the address.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for 0 bytes; `CUDA_ERROR_OUT_OF_MEMORY` for more than the device has;
/// those of a new node.
pub(crate) fn add_allocation(
    driver: &Driver,
    graphs: &mut Graphs,
    (graph, after): (usize, &[usize]),
    wanted: Wanted,
) -> Outcome<(usize, u64)> {
    let Wanted { device, kind, peers, bytes } = wanted;
    let known = graphs.graph(graph)?;
    known.check_nodes(after)?;
    if known.owner.is_some() {
        return Err(Code::NOT_SUPPORTED);
    }
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    if bytes > answer(driver.sim.memory_info(device))?.total_bytes {
        return Err(Code::OUT_OF_MEMORY);
    }
    let before = known.reached_backwards(after.iter().copied());
    let of = (graph, device, peers.as_slice());
    let address = match graphs.memory.place(of, bytes, &before) {
        Some(address) => address,
        None => {
            let room = bytes.checked_next_multiple_of(BLOCK_BYTES).ok_or(Code::OUT_OF_MEMORY)?;
            let start = answer(driver.sim.address_reserve(room, 0, DevicePtr(0)))?;
            graphs.memory.add_region(Span::new(start, room), of);
            graphs.memory.place(of, bytes, &before).ok_or(Code::UNKNOWN)?
        }
    };
    let task = Task::Allocate(Allocation { device, kind, bytes, address });
    Ok((graphs.add_node(graph, after, task)?, address))
}

/// Makes a node that frees memory of a graph.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for what is no allocation of a node, or one that a node of its graph
/// frees; those of a new node.
pub(crate) fn add_free(
    graphs: &mut Graphs,
    (graph, after): (usize, &[usize]),
    address: u64,
) -> Outcome<usize> {
    graphs.graph(graph)?.check_nodes(after)?;
    graphs.memory.check_free_node(address)?;
    let node = graphs.add_node(graph, after, Task::Free(address))?;
    graphs.memory.set_freed_by(graph, address, node);
    Ok(node)
}

/// Frees memory of a graph outside of graphs. `None` if the address is not of a graph's memory.
pub(crate) fn free(driver: &Driver, address: u64) -> Option<Outcome> {
    let mut graphs = driver.graphs();
    graphs.memory.owns(address).then(|| graphs.memory.end(address))
}

/// Gives physical memory to the allocations of an executable graph.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(crate) fn map(driver: &Driver, graphs: &mut Graphs, tasks: &[Task]) -> Outcome {
    let addresses: Vec<u64> = tasks
        .iter()
        .filter_map(|task| match task {
            Task::Allocate(allocation) => Some(allocation.address),
            _ => None,
        })
        .collect();
    for range in graphs.memory.unmapped(&addresses) {
        // Graphs share physical memory: what no allocation uses goes to the next one.
        reclaim(driver, graphs, range.device, &addresses);
        let memory = map_one(driver, &range)?;
        graphs.memory.set_mapped(range.span, memory);
    }
    Ok(())
}

/// Maps new physical memory at a range, for its device and the peers.
fn map_one(driver: &Driver, range: &Unmapped) -> Outcome<MemoryHandle> {
    let props = MemoryProps {
        allocation_type: AllocationType::PINNED,
        location: Location::device(range.device),
        handle_types: HandleTypes::empty(),
    };
    let memory = answer(driver.sim.memory_create(range.span.bytes, props))?;
    let all = std::iter::once(&range.device).chain(&range.peers);
    let access: Vec<MemoryAccess> = all
        .map(|&device| MemoryAccess {
            location: Location::device(device),
            access: AccessFlags::READ_WRITE,
        })
        .collect();
    // SAFETY: `memory_map` asks that no code counts on having the memory alone if it is mapped
    // elsewhere: it is new. `memory_set_access` asks that no code loses access: nothing uses the
    // addresses yet.
    let mapped = answer(unsafe { driver.sim.memory_map(range.span, 0, memory) })
        .and_then(|()| answer(unsafe { driver.sim.memory_set_access(range.span, &access) }));
    if mapped.is_err() {
        // SAFETY: this function made the memory, and gives no handle of it out. Nothing uses the
        // addresses.
        unsafe {
            _ = driver.sim.memory_unmap(range.span);
            _ = driver.sim.memory_release(memory);
        }
    }
    mapped.map(|()| memory)
}

/// Gives back the physical memory of a device that no allocation of a graph uses, and addresses of
/// graphs that are gone. Ranges with an address of `needed` stay.
fn reclaim(driver: &Driver, graphs: &mut Graphs, device: DeviceId, needed: &[u64]) {
    let is_needed = |span: &Span| {
        let offsets = needed.iter().filter_map(|address| address.checked_sub(span.ptr.0));
        offsets.into_iter().any(|offset| offset < span.bytes)
    };
    let idle = graphs.memory.idle(device, |graph| graphs.uses(graph));
    for (span, is_gone) in idle.into_iter().filter(|(span, _)| !is_needed(span)) {
        let memory = graphs.memory.unmap(span, is_gone);
        // SAFETY: no allocation in the range exists, so no code may use it. The memory's handle was
        // the table's alone.
        unsafe {
            if let Some(memory) = memory {
                _ = driver.sim.memory_unmap(span);
                _ = driver.sim.memory_release(memory);
            }
            if is_gone {
                _ = driver.sim.address_free(span);
            }
        }
    }
}

/// Gives back all physical memory of a device that no allocation of a graph uses.
pub(crate) fn trim(driver: &Driver, device: DeviceId) {
    reclaim(driver, &mut driver.graphs(), device, &[]);
}
