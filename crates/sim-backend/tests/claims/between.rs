//! Memory between machines. Two machines of one process share memory as two processes do: each has
//! only what the descriptors and bytes of the other one say.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use pagewise_hal::{
    AccessFlags, AllocationType, Backend, Code, DeviceId, DevicePtr, EventFlags, ExportedPointer,
    HandleTypes, IpcMemHandle, Location, MemoryAccess, MemoryProps, PointerAttribute,
    PoolAttribute, PoolHandle, PoolProps, Result, ShareableHandle, Span, StreamHandle,
};
use pagewise_sim::{SimBackend, SimConfig};

const DEVICE: DeviceId = DeviceId(0);
const FD: HandleTypes = HandleTypes::POSIX_FILE_DESCRIPTOR;
const STREAM: StreamHandle = StreamHandle::PER_THREAD;
const MIB: u64 = 1 << 20;

fn sim() -> SimBackend {
    SimBackend::new(SimConfig::h200()).expect("a valid configuration")
}

fn code<T>(answer: Result<T>) -> i32 {
    answer.err().map_or(0, |error| error.code().unwrap_or(-1))
}

fn pool(sim: &SimBackend, location: Location) -> PoolHandle {
    let allocation_type = AllocationType::PINNED;
    let props = PoolProps { allocation_type, location, handle_types: FD, max_bytes: 0 };
    sim.pool_create(props).expect("a pool")
}

fn owned(handle: ShareableHandle) -> OwnedFd {
    // SAFETY: the call that made the descriptor made it for its caller, and no other code has it.
    unsafe { OwnedFd::from_raw_fd(handle.0) }
}

fn fill(sim: &SimBackend, ptr: DevicePtr, bytes: u64, value: u8) {
    // SAFETY: only this test uses the memory.
    unsafe { sim.memset(Span::new(ptr, bytes), value, STREAM) }.expect("live memory");
}

fn bytes_at(sim: &SimBackend, ptr: DevicePtr, bytes: u64) -> Vec<u8> {
    let mut copy = vec![0_u8; bytes as usize + 4096];
    let start = (copy.as_mut_ptr().expose_provenance() as u64).next_multiple_of(4096);
    let span = Span::new(DevicePtr(start), bytes);
    // SAFETY: the vector lives until it is unregistered, and only this test uses both memories.
    unsafe {
        sim.host_register(span, Default::default()).expect("host memory");
        sim.memcpy(span.ptr, ptr, bytes, STREAM).expect("live memory");
        sim.host_unregister(span.ptr).expect("registered");
    }
    let first = start as usize - copy.as_ptr().addr();
    copy[first..first + bytes as usize].to_vec()
}

fn import(sim: &SimBackend, handle: &OwnedFd) -> Result<PoolHandle> {
    // SAFETY: the handle is of another machine.
    unsafe { sim.pool_import(ShareableHandle(handle.as_raw_fd()), FD) }
}

fn import_pointer(sim: &SimBackend, pool: PoolHandle, blob: ExportedPointer) -> Result<DevicePtr> {
    // SAFETY: the exporter's allocation is complete, and tests say when it is freed.
    unsafe { sim.pool_import_pointer(pool, blob) }
}

fn free(sim: &SimBackend, ptr: DevicePtr) -> Result<()> {
    // SAFETY: only this test uses the memory, and not afterwards.
    unsafe { sim.free_async(ptr, STREAM) }?;
    sim.stream_synchronize(STREAM)
}

fn open(sim: &SimBackend, handle: IpcMemHandle) -> Result<DevicePtr> {
    // SAFETY: tests say when the exporter frees the memory.
    unsafe { sim.ipc_open_mem_handle(DEVICE, handle) }
}

fn close(sim: &SimBackend, ptr: DevicePtr) -> Result<()> {
    // SAFETY: no work uses the memory.
    unsafe { sim.ipc_close_mem_handle(ptr) }
}

/// An exported pool with an allocation that starts inside a page and reaches into a second chunk.
struct Exporter {
    sim: SimBackend,
    pool: PoolHandle,
    handle: OwnedFd,
    first: DevicePtr,
    memory: Span,
    blob: ExportedPointer,
}

fn exporter() -> Exporter {
    let sim = sim();
    let pool = pool(&sim, Location::device(DEVICE));
    let first = sim.pool_alloc(pool, 5 * 512, STREAM).expect("room");
    let memory = Span::new(sim.pool_alloc(pool, 40 * MIB, STREAM).expect("room"), 40 * MIB);
    fill(&sim, memory.ptr, memory.bytes, 1);
    let handle = owned(sim.pool_export(pool, FD).expect("made for it"));
    let blob = sim.pool_export_pointer(memory.ptr).expect("exported");
    Exporter { sim, pool, handle, first, memory, blob }
}

#[test]
fn an_imported_allocation_has_the_bytes_of_its_exporter_in_both_directions() -> Result<()> {
    let of = exporter();
    let here = sim();
    let pool = import(&here, &of.handle)?;
    let ptr = import_pointer(&here, pool, of.blob)?;
    let size = |attribute| here.pointer_attribute(ptr, attribute);
    assert_eq!(size(PointerAttribute::RANGE_SIZE)?, of.memory.bytes);
    assert_eq!(size(PointerAttribute::RANGE_START_ADDR)?, ptr.0);
    assert_eq!(size(PointerAttribute::MEMPOOL_HANDLE)?, pool.as_raw());
    assert_eq!(ptr.0 % 4096, of.memory.ptr.0 % 4096);
    assert!(bytes_at(&here, ptr, of.memory.bytes).iter().all(|byte| *byte == 1));
    fill(&here, ptr.offset(32 * MIB - 100), 200, 2);
    let seen = bytes_at(&of.sim, of.memory.ptr.offset(32 * MIB - 101), 202);
    assert_eq!((seen[0], seen[201]), (1, 1));
    assert!(seen[1..201].iter().all(|byte| *byte == 2));
    fill(&of.sim, of.memory.ptr, 1, 3);
    assert_eq!(bytes_at(&here, ptr, 2), [3, 1]);
    Ok(())
}

#[test]
fn an_imported_pool_is_one_however_often_it_arrives_and_gives_nothing_else() -> Result<()> {
    let of = exporter();
    let here = sim();
    let pool = import(&here, &of.handle)?;
    let again = owned(of.sim.pool_export(of.pool, FD)?);
    assert_eq!(import(&here, &again)?, pool);
    assert_eq!(here.pool_access(pool, Location::device(DEVICE))?, AccessFlags::READ_WRITE);
    assert_eq!(code(here.pool_alloc(pool, 512, STREAM)), Code::INVALID_VALUE);
    assert_eq!(code(here.pool_export(pool, FD)), Code::INVALID_VALUE);
    let size = here.pool_attribute(pool, PoolAttribute::RESERVED_MEM_CURRENT);
    assert_eq!(code(size), Code::INVALID_VALUE);
    Ok(())
}

#[test]
fn device_memory_that_is_imported_twice_is_one_mapping_that_one_free_ends() -> Result<()> {
    let of = exporter();
    let here = sim();
    let pool = import(&here, &of.handle)?;
    let ptr = import_pointer(&here, pool, of.blob)?;
    assert_eq!(import_pointer(&here, pool, of.blob)?, ptr);
    free(&here, ptr)?;
    assert_eq!(code(free(&here, ptr)), Code::INVALID_VALUE);
    assert_eq!(import_pointer(&here, pool, of.blob)?, ptr, "the addresses were given back");
    Ok(())
}

#[test]
fn host_memory_that_is_imported_already_is_refused() -> Result<()> {
    let (there, here) = (sim(), sim());
    let exported = pool(&there, Location::host_numa(0));
    let memory = there.pool_alloc(exported, 4096, STREAM)?;
    let handle = owned(there.pool_export(exported, FD)?);
    let blob = there.pool_export_pointer(memory)?;
    let pool = import(&here, &handle)?;
    let ptr = import_pointer(&here, pool, blob)?;
    assert_eq!(code(import_pointer(&here, pool, blob)), Code::ALREADY_MAPPED);
    assert_eq!(here.pointer_attribute(ptr, PointerAttribute::MEMORY_TYPE)?, 1);
    Ok(())
}

#[test]
fn memory_stays_with_its_importer_when_the_exporter_frees_it() -> Result<()> {
    let of = exporter();
    let here = sim();
    let pool = import(&here, &of.handle)?;
    let ptr = import_pointer(&here, pool, of.blob)?;
    free(&of.sim, of.memory.ptr)?;
    free(&of.sim, of.first)?;
    let next = of.sim.pool_alloc(of.pool, 60 * MIB, STREAM)?;
    fill(&of.sim, next, 60 * MIB, 9);
    of.sim.pool_export_pointer(next)?;
    assert!(bytes_at(&here, ptr, of.memory.bytes).iter().all(|byte| *byte == 1));
    fill(&here, ptr, of.memory.bytes, 7);
    assert!(bytes_at(&of.sim, next, 60 * MIB).iter().all(|byte| *byte == 9));
    assert_eq!(code(import_pointer(&here, pool, of.blob)), Code::INVALID_VALUE, "it is gone");
    free(&here, ptr)
}

#[test]
fn the_file_of_a_pool_uses_memory_again_once_its_importers_are_gone() -> Result<()> {
    let of = exporter();
    let file = File::from(of.handle.try_clone().expect("a descriptor"));
    let size = || file.metadata().expect("a file").len();
    free(&of.sim, of.memory.ptr)?;
    let here = sim();
    let pool = import(&here, &of.handle)?;
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let memory = of.sim.pool_alloc(of.pool, 40 * MIB, STREAM)?;
        let blob = of.sim.pool_export_pointer(memory)?;
        let ptr = import_pointer(&here, pool, blob)?;
        free(&here, ptr)?;
        free(&of.sim, memory)?;
        sizes.push(size());
    }
    assert!(sizes.windows(2).all(|pair| pair[0] == pair[1]), "{sizes:?}");
    Ok(())
}

#[test]
fn a_machine_that_is_gone_leaves_the_other_its_memory() -> Result<()> {
    let of = exporter();
    let here = sim();
    let pool = import(&here, &of.handle)?;
    let ptr = import_pointer(&here, pool, of.blob)?;
    let (plain, handle) = plain(&of.sim, 4)?;
    let opened = open(&here, handle)?;
    let (blob, bytes) = (of.blob, of.memory.bytes);
    let _ = plain;
    drop(of);
    fill(&here, opened, 1, 5);
    assert_eq!(bytes_at(&here, opened, 3), [5, 4, 4]);
    assert!(bytes_at(&here, ptr, bytes).iter().all(|byte| *byte == 1));
    free(&here, ptr)?;
    // The descriptor of the pool has the memory still.
    assert_eq!(import_pointer(&here, pool, blob)?, ptr);
    close(&here, opened)?;
    assert_eq!(code(open(&here, handle)), Code::INVALID_VALUE, "its descriptor is closed");
    Ok(())
}

#[test]
fn an_imported_pool_that_is_destroyed_goes_with_its_last_memory() -> Result<()> {
    let of = exporter();
    let here = sim();
    let pool = import(&here, &of.handle)?;
    let ptr = import_pointer(&here, pool, of.blob)?;
    // SAFETY: the test uses the handle again only where it has to be refused.
    unsafe { here.pool_destroy(pool) }?;
    assert_eq!(code(import_pointer(&here, pool, of.blob)), Code::INVALID_VALUE);
    fill(&here, ptr, 10, 8);
    assert_ne!(import(&here, &of.handle)?, pool);
    free(&here, ptr)
}

fn plain(sim: &SimBackend, value: u8) -> Result<(DevicePtr, IpcMemHandle)> {
    let ptr = sim.alloc_device(DEVICE, 3 * MIB)?;
    fill(sim, ptr, 3 * MIB, value);
    Ok((ptr, sim.ipc_mem_handle(ptr.offset(MIB))?))
}

#[test]
fn opened_memory_has_the_bytes_of_its_owner_in_both_directions() -> Result<()> {
    let (there, here) = (sim(), sim());
    let (memory, handle) = plain(&there, 1)?;
    assert_eq!(there.ipc_mem_handle(memory)?, handle);
    let ptr = open(&here, handle)?;
    assert!(bytes_at(&here, ptr, 3 * MIB).iter().all(|byte| *byte == 1));
    fill(&here, ptr.offset(MIB), 4, 2);
    assert_eq!(bytes_at(&there, memory.offset(MIB - 1), 6), [1, 2, 2, 2, 2, 1]);
    fill(&there, memory, 1, 3);
    assert_eq!(bytes_at(&here, ptr, 2), [3, 1]);
    assert_eq!(here.pointer_attribute(ptr, PointerAttribute::RANGE_SIZE)?, 3 * MIB);
    assert_eq!(code(here.ipc_mem_handle(ptr)), Code::INVALID_VALUE);
    assert_eq!(code(free(&here, ptr)), Code::INVALID_VALUE);
    Ok(())
}

/// CONTRACT-108
#[test]
fn memory_is_closed_as_often_as_it_was_opened() -> Result<()> {
    let (there, here) = (sim(), sim());
    let (memory, handle) = plain(&there, 1)?;
    let ptr = open(&here, handle)?;
    assert_eq!(open(&here, handle)?, ptr);
    close(&here, ptr)?;
    // SAFETY: the memory belongs to the test.
    unsafe { there.free(memory) }?;
    assert_eq!(bytes_at(&here, ptr, 2), [1, 1], "an opener keeps it");
    close(&here, ptr)?;
    assert_eq!(code(close(&here, ptr)), Code::INVALID_VALUE);
    assert_eq!(code(open(&here, handle)), Code::INVALID_VALUE);
    assert_eq!(code(here.pointer_attribute(ptr, PointerAttribute::RANGE_SIZE)), 1);
    let next = there.alloc_device(DEVICE, 3 * MIB)?;
    assert_eq!(next, memory);
    assert_eq!(bytes_at(&there, next, 2), [0, 0]);
    Ok(())
}

#[test]
fn a_machine_does_not_open_its_own_memory() -> Result<()> {
    let there = sim();
    let (_memory, handle) = plain(&there, 1)?;
    assert_eq!(code(open(&there, handle)), Code::INVALID_CONTEXT);
    Ok(())
}

#[test]
fn bytes_that_are_no_handle_open_nothing() -> Result<()> {
    let (there, here) = (sim(), sim());
    let (_memory, handle) = plain(&there, 1)?;
    assert_eq!(code(open(&here, IpcMemHandle([0; 64]))), Code::INVALID_VALUE);
    for byte in 0..40 {
        for bit in [1, 0x80] {
            let mut changed = handle;
            changed.0[byte] ^= bit;
            assert_eq!(code(open(&here, changed)), Code::INVALID_VALUE, "byte {byte}");
        }
    }
    let event = there.event_create(DEVICE, EventFlags::DISABLE_TIMING)?;
    let event = there.ipc_event_handle(event)?;
    assert_eq!(code(open(&here, IpcMemHandle(event))), Code::INVALID_VALUE);
    assert_eq!(code(here.check_ipc_event_handle(&handle.0)), Code::INVALID_VALUE);
    Ok(())
}

#[test]
fn an_event_is_known_to_others_until_it_is_destroyed() -> Result<()> {
    let (there, here) = (sim(), sim());
    let event = there.event_create(DEVICE, EventFlags::DISABLE_TIMING)?;
    let handle = there.ipc_event_handle(event)?;
    assert_eq!(there.ipc_event_handle(event)?, handle);
    assert_eq!(code(here.check_ipc_event_handle(&handle)), 0);
    assert_eq!(code(there.check_ipc_event_handle(&handle)), 201);
    // SAFETY: the handle is used again only where it has to be refused.
    unsafe { there.event_destroy(event) }?;
    assert_eq!(code(here.check_ipc_event_handle(&handle)), Code::INVALID_HANDLE);
    assert_eq!(code(there.ipc_event_handle(event)), Code::INVALID_HANDLE);
    Ok(())
}

// ---- physical memory ----------------------------------------------------------------------------

fn physical(sim: &SimBackend, location: Location) -> Result<pagewise_hal::MemoryHandle> {
    let props = MemoryProps { allocation_type: AllocationType::PINNED, location, handle_types: FD };
    sim.memory_create(4 * MIB, props)
}

fn map(sim: &SimBackend, memory: pagewise_hal::MemoryHandle) -> Result<DevicePtr> {
    let ptr = sim.address_reserve(4 * MIB, 0, DevicePtr::NULL)?;
    let span = Span::new(ptr, 4 * MIB);
    let access = AccessFlags::READ_WRITE;
    // SAFETY: only this test uses the memory, and it counts on sharing it.
    unsafe {
        sim.memory_map(span, 0, memory)?;
        sim.memory_set_access(
            span,
            &[MemoryAccess { location: Location::device(DEVICE), access }],
        )?;
    }
    Ok(ptr)
}

#[test]
fn exported_physical_memory_has_one_content_at_all_of_its_mappings() -> Result<()> {
    let (there, here) = (sim(), sim());
    let memory = physical(&there, Location::device(DEVICE))?;
    let places = [map(&there, memory)?, map(&there, memory)?];
    fill(&there, places[0], 4 * MIB, 1);
    let handle = owned(there.memory_export(memory, FD)?);
    let shareable = ShareableHandle(handle.as_raw_fd());
    let imported = here.memory_import(shareable, FD)?;
    let ptr = map(&here, imported)?;
    assert!(bytes_at(&here, ptr, 4 * MIB).iter().all(|byte| *byte == 1));
    fill(&here, ptr.offset(MIB), 2, 2);
    for place in places {
        assert_eq!(bytes_at(&there, place.offset(MIB - 1), 4), [1, 2, 2, 1]);
    }
    let own = map(&there, there.memory_import(shareable, FD)?)?;
    assert_eq!(bytes_at(&there, own.offset(MIB), 1), [2], "in the same machine too");
    // SAFETY: no work uses the mappings.
    unsafe {
        there.memory_unmap(Span::new(places[1], 4 * MIB))?;
        there.memory_unmap(Span::new(places[0], 4 * MIB))?;
    }
    fill(&here, ptr, 1, 4);
    assert_eq!(bytes_at(&there, map(&there, memory)?, 2), [4, 1], "mapped again");
    Ok(())
}

#[test]
fn physical_memory_that_is_mapped_nowhere_keeps_its_bytes_when_it_is_exported() -> Result<()> {
    let (there, here) = (sim(), sim());
    let memory = physical(&there, Location::host_numa(0))?;
    let span = Span::new(there.address_reserve(4 * MIB, 0, DevicePtr::NULL)?, 4 * MIB);
    let access = AccessFlags::READ_WRITE;
    // SAFETY: only this test uses the memory.
    unsafe {
        there.memory_map(span, 0, memory)?;
        let location = Location::device(DEVICE);
        there.memory_set_access(span, &[MemoryAccess { location, access }])?;
        fill(&there, span.ptr, span.bytes, 6);
        there.memory_unmap(span)?;
    }
    let handle = owned(there.memory_export(memory, FD)?);
    drop(there);
    let imported = here.memory_import(ShareableHandle(handle.as_raw_fd()), FD)?;
    assert!(bytes_at(&here, map(&here, imported)?, 4 * MIB).iter().all(|byte| *byte == 6));
    Ok(())
}

#[test]
fn imported_physical_memory_counts_on_the_machine_that_made_it_only() -> Result<()> {
    let (there, here) = (sim(), sim());
    let memory = physical(&there, Location::device(DEVICE))?;
    let handle = owned(there.memory_export(memory, FD)?);
    let before = here.memory_info(DEVICE)?;
    here.memory_import(ShareableHandle(handle.as_raw_fd()), FD)?;
    assert_eq!(here.memory_info(DEVICE)?, before);
    Ok(())
}

#[test]
fn physical_memory_is_exported_in_the_way_that_it_was_made_for() -> Result<()> {
    let sim = sim();
    let memory = physical(&sim, Location::device(DEVICE))?;
    assert_eq!(code(sim.memory_export(memory, HandleTypes::empty())), Code::INVALID_VALUE);
    let (location, handle_types) = (Location::device(DEVICE), HandleTypes::empty());
    let props = MemoryProps { allocation_type: AllocationType::PINNED, location, handle_types };
    let closed = sim.memory_create(4 * MIB, props)?;
    assert_eq!(code(sim.memory_export(closed, FD)), Code::INVALID_VALUE);
    // SAFETY: the handle is used again only where it has to be refused.
    unsafe { sim.memory_release(closed) }?;
    assert_eq!(code(sim.memory_export(closed, FD)), Code::INVALID_VALUE);
    assert_eq!(code(sim.memory_import(ShareableHandle(-1), FD)), Code::UNKNOWN);
    let win = sim.memory_import(ShareableHandle(-1), HandleTypes::WIN32);
    assert_eq!(code(win), Code::NOT_SUPPORTED);
    Ok(())
}

// ---- hostile peers ------------------------------------------------------------------------------

#[test]
fn descriptors_of_other_files_are_no_pools_and_no_memory() -> Result<()> {
    let here = sim();
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let path = std::env::current_exe().expect("a file");
    let disk = File::open(path).expect("a file");
    let unsealed = unsealed_file();
    let others = [reader.as_raw_fd(), socket.as_raw_fd(), disk.as_raw_fd(), unsealed.as_raw_fd()];
    for descriptor in others.into_iter().chain([-1, i32::MIN, i32::MAX, 1_000_000]) {
        let handle = ShareableHandle(descriptor);
        // SAFETY: the call has to refuse the handle.
        assert_eq!(code(unsafe { here.pool_import(handle, FD) }), Code::UNKNOWN);
        assert_eq!(code(here.memory_import(handle, FD)), Code::UNKNOWN);
    }
    let there = sim();
    let memory = physical(&there, Location::device(DEVICE))?;
    let handle = owned(there.memory_export(memory, FD)?);
    assert_eq!(code(import(&here, &handle)), Code::UNKNOWN, "memory is no pool");
    let of = exporter();
    let pool = ShareableHandle(of.handle.as_raw_fd());
    assert_eq!(code(here.memory_import(pool, FD)), Code::UNKNOWN, "a pool is no memory");
    Ok(())
}

/// A file in memory that could become shorter while it is mapped.
fn unsealed_file() -> OwnedFd {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    rustix::fs::memfd_create("test", flags).expect("a file")
}

#[test]
fn an_exported_file_never_becomes_shorter() {
    let of = exporter();
    let file = File::from(of.handle);
    assert!(file.set_len(4096).is_err());
    assert_eq!(bytes_at(&of.sim, of.memory.ptr, 1), [1]);
}

/// Every word of a pool's file takes hostile values, one at a time.
#[test]
fn what_a_hostile_peer_writes_into_a_pools_file_is_refused_or_harmless() -> Result<()> {
    let of = exporter();
    let mut file = File::from(of.handle.try_clone().expect("a descriptor"));
    let places = (0..56).chain(4096..4112).chain((512 << 10)..(512 << 10) + 32).step_by(8);
    for place in places {
        let mut kept = [0; 8];
        file.seek(SeekFrom::Start(place)).expect("a place");
        file.read_exact(&mut kept).expect("a word");
        for value in [0, 1, 5, 1 << 31, 1 << 40, 1 << 63, u64::MAX - 4095, u64::MAX] {
            file.seek(SeekFrom::Start(place)).expect("a place");
            file.write_all(&u64::to_le_bytes(value)).expect("a word");
            let here = sim();
            let Ok(pool) = import(&here, &of.handle) else { continue };
            if let Ok(ptr) = import_pointer(&here, pool, of.blob) {
                let size = here.pointer_attribute(ptr, PointerAttribute::RANGE_SIZE)?;
                fill(&here, ptr, 1, 1);
                fill(&here, ptr.offset(size - 1), 1, 1);
                free(&here, ptr)?;
            }
        }
        file.seek(SeekFrom::Start(place)).expect("a place");
        file.write_all(&kept).expect("a word");
    }
    let here = sim();
    let pool = import(&here, &of.handle)?;
    import_pointer(&here, pool, of.blob)?;
    free(&of.sim, of.memory.ptr)?;
    fill(&of.sim, of.first, 5 * 512, 1);
    Ok(())
}

/// With genuine faults of the host a machine has two views of its memory.
#[test]
fn machines_with_host_faults_share_memory_as_others_do() -> Result<()> {
    use pagewise_sim::HostFaults;
    for how in [HostFaults::Real, HostFaults::Userfaultfd, HostFaults::PageProtection] {
        let (Ok(there), Ok(here)) = (
            SimBackend::new(SimConfig::h200().host_faults(how)),
            SimBackend::new(SimConfig::h200().host_faults(how)),
        ) else {
            continue; // The machine that runs the tests has no such mechanism.
        };
        let exported = pool(&there, Location::host_numa(0));
        let memory = there.pool_alloc(exported, 3 * 4096, STREAM)?;
        let place: *mut u8 = std::ptr::with_exposed_provenance_mut(memory.0 as usize);
        // SAFETY: the memory is live host memory, which only this test uses.
        unsafe { place.write_volatile(1) };
        let handle = owned(there.pool_export(exported, FD)?);
        let blob = there.pool_export_pointer(memory)?;
        let pool = import(&here, &handle)?;
        let ptr = import_pointer(&here, pool, blob)?;
        let other: *mut u8 = std::ptr::with_exposed_provenance_mut(ptr.0 as usize);
        // SAFETY: both are live host memory, which only this test uses.
        unsafe {
            assert_eq!(other.read_volatile(), 1, "{how:?}");
            other.write_volatile(2);
            assert_eq!(place.read_volatile(), 2, "{how:?}");
            place.add(8192).write_volatile(3);
            assert_eq!(other.add(8192).read_volatile(), 3, "{how:?}");
        }
        let (plain_memory, handle) = plain(&there, 4)?;
        let opened = open(&here, handle)?;
        fill(&here, opened, 1, 5);
        let span = Span::new(plain_memory, 2);
        // SAFETY: only this test uses the memory.
        unsafe { there.memcpy(memory, span.ptr, span.bytes, STREAM) }?;
        // SAFETY: the memory is live host memory, which only this test uses.
        let seen = unsafe { [place.read_volatile(), place.add(1).read_volatile()] };
        assert_eq!(seen, [5, 4], "{how:?}");
        // SAFETY: no work uses the memory.
        unsafe { there.free(plain_memory) }?;
        close(&here, opened)?;
        free(&here, ptr)?;
        free(&there, memory)?;
    }
    Ok(())
}
