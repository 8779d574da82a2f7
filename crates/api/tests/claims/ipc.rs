//! Pools for other processes. One process plays both, with one simulated machine or with two.
#![cfg(all(feature = "sim", unix))]

use std::sync::Arc;

use pagewise::inject::{FaultInjector, Sweep};
use pagewise::intercept::Operation;
use pagewise::resource::{
    Allocation, AllocationHandle, BufferDescriptor, DeviceMemoryResource, MemoryResource,
    PinnedMemoryResource, PoolOptions,
};
use pagewise::{
    BackendExt, Code, Device, ErrorKind, HandleTypes, HostAccess, HostTouch, Machine, NumaNode,
    Result, Stream,
};

const OPTIONS: PoolOptions = PoolOptions {
    max_bytes: 0,
    release_threshold_bytes: 0,
    handle_types: HandleTypes::POSIX_FILE_DESCRIPTOR,
};

fn machine() -> Result<Machine> {
    Ok(Machine::from(pagewise::sim()?))
}

fn on_device(machine: &Machine) -> Result<Arc<DeviceMemoryResource>> {
    DeviceMemoryResource::new_pool(machine, Device::FIRST, OPTIONS).map(Arc::new)
}

fn on_host(machine: &Machine) -> Result<Arc<PinnedMemoryResource>> {
    PinnedMemoryResource::on_node(machine, NumaNode::new(0)?, OPTIONS).map(Arc::new)
}

#[test]
fn what_one_side_writes_the_other_reads() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let pool = on_host(&machine)?;
    let memory = Allocation::new(pool.clone(), 4096, &stream)?;
    let mapped = PinnedMemoryResource::from_allocation_handle(&machine, pool.allocation_handle()?)?;
    let sent = memory.descriptor()?.to_bytes();
    let imported = mapped.import(&BufferDescriptor::from_bytes(&sent)?, &stream)?;
    // SAFETY: only this test uses the memory, and it waits for the stream.
    unsafe { machine.backend().memset(memory.span(), 9, stream.handle())? };
    let mirror = machine.backend().alloc(4096)?;
    // SAFETY: only this test uses either piece of memory, and the two do not overlap; the stream
    // was given the fill before the copy. The mirror is freed once and not used again.
    unsafe {
        let (to, from) = (mirror.ptr, imported.device_ptr());
        machine.backend().memcpy(to, from, 4096, stream.handle())?;
        let read = HostTouch { span: mirror, stride_bytes: 1, access: HostAccess::Read };
        assert_eq!(machine.backend().host_touch(read)?, 9 * 4096);
        machine.backend().free(mirror.ptr)?;
    }
    imported.free()?;
    memory.free()
}

/// Two machines share as those of two processes do.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn what_one_machine_writes_another_reads() -> Result<()> {
    let (there, here) = (machine()?, machine()?);
    let pool = on_host(&there)?;
    let writes = Stream::new(&there, Device::FIRST)?;
    let memory = Allocation::new(pool.clone(), 4096, &writes)?;
    // SAFETY: only this test uses the memory, and it waits for the stream.
    unsafe { there.backend().memset(memory.span(), 9, writes.handle())? };
    writes.synchronize()?;
    let mapped = PinnedMemoryResource::from_allocation_handle(&here, pool.allocation_handle()?)?;
    let reads = Stream::new(&here, Device::FIRST)?;
    let sent = memory.descriptor()?.to_bytes();
    let imported = mapped.import(&BufferDescriptor::from_bytes(&sent)?, &reads)?;
    let read = HostTouch { span: imported.span(), stride_bytes: 1, access: HostAccess::Read };
    // SAFETY: only this test uses the memory, and the stream that wrote it was waited for.
    assert_eq!(unsafe { here.backend().host_touch(read)? }, 9 * 4096);
    drop((memory, pool, there));
    // SAFETY: only this test uses the memory.
    assert_eq!(unsafe { here.backend().host_touch(read)? }, 9 * 4096, "it stays");
    imported.free()?;
    assert_eq!(here.failures_on_drop(), 0);
    Ok(())
}

#[test]
fn a_mapped_resource_gives_only_what_is_imported() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let pool = on_device(&machine)?;
    assert!(!pool.is_mapped());
    let mapped = DeviceMemoryResource::from_allocation_handle(&machine, pool.allocation_handle()?)?;
    assert!(mapped.is_mapped() && mapped.device() == Device::FIRST);
    let inner = mapped.pool().expect("it has one");
    assert!(inner.is_owned() && inner.uuid() == pool.pool().and_then(|pool| pool.uuid()));
    let error = mapped.allocate(4096, &stream).unwrap_err();
    assert!(error.to_string().contains("another process's"), "{error}");
    assert!(inner.figures().is_err(), "another process's pool shows none");
    assert_eq!(mapped.allocation_handle().unwrap_err().kind(), ErrorKind::Unsupported);
    let memory = Allocation::new(pool.clone(), 4096, &stream)?;
    let error = pool.import(&memory.descriptor()?, &stream).unwrap_err();
    assert!(error.to_string().contains("from_allocation_handle"), "{error}");
    Ok(())
}

#[test]
fn one_import_held_twice_ends_with_the_last() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let pool = on_host(&machine)?;
    let memory = Allocation::new(pool.clone(), 4096, &stream)?;
    let mapped = PinnedMemoryResource::from_allocation_handle(&machine, pool.allocation_handle()?)?;
    let descriptor = memory.descriptor()?;
    let first = mapped.import(&descriptor, &stream)?;
    let second = mapped.import(&descriptor, &stream)?;
    assert_eq!(first.span(), second.span());
    first.free()?;
    drop(second);
    let third = mapped.import(&descriptor, &stream)?;
    drop(third);
    memory.free()?;
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

#[test]
fn descriptors_are_checked_before_they_are_believed() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let pool = on_device(&machine)?;
    let memory = Allocation::new(pool.clone(), 4096, &stream)?;
    let mapped = DeviceMemoryResource::from_allocation_handle(&machine, pool.allocation_handle()?)?;
    let sent = memory.descriptor()?.to_bytes();
    for length in [0, 8, 71] {
        let error = BufferDescriptor::from_bytes(&sent[..length]).unwrap_err();
        assert!(error.to_string().contains("72"), "{error}");
    }
    for bytes in [0_u64, 4097, 409_600, u64::MAX] {
        let mut changed = sent;
        changed[64..].copy_from_slice(&bytes.to_le_bytes());
        let error = mapped.import(&BufferDescriptor::from_bytes(&changed)?, &stream).unwrap_err();
        assert!(error.to_string().contains("4096"), "{error}");
    }
    let garbage = BufferDescriptor::from_bytes(&[7; 72])?;
    assert_eq!(mapped.import(&garbage, &stream).unwrap_err().code(), Some(Code::INVALID_VALUE));
    let other = on_device(&machine)?;
    other.allocation_handle()?;
    let elsewhere = Allocation::new(other, 4096, &stream)?.descriptor()?;
    assert!(mapped.import(&elsewhere, &stream).is_err(), "of another pool");
    mapped.import(&memory.descriptor()?, &stream)?.free()
}

#[test]
fn only_pools_made_for_it_are_exported() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let closed =
        Arc::new(DeviceMemoryResource::new_pool(&machine, Device::FIRST, PoolOptions::default())?);
    let direct = Arc::new(DeviceMemoryResource::direct(&machine, Device::FIRST)?);
    for resource in [closed, direct] {
        assert_eq!(resource.allocation_handle().unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(resource.register().unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(resource.pool().and_then(|pool| pool.uuid()), None, "nothing changed");
        let memory = Allocation::new(resource, 4096, &stream)?;
        assert_eq!(memory.descriptor().unwrap_err().code(), Some(Code::INVALID_VALUE));
    }
    let open = on_device(&machine)?;
    let memory = Allocation::new(open.clone(), 4096, &stream)?;
    let error = memory.descriptor().unwrap_err();
    assert!(error.to_string().contains("allocation_handle"), "{error}");
    open.allocation_handle()?;
    memory.descriptor().map(drop)
}

#[test]
fn the_registry_gives_one_resource_for_a_pool() -> Result<()> {
    let machine = machine()?;
    let pool = on_device(&machine)?;
    let uuid = pool.register()?;
    assert!(Arc::ptr_eq(&DeviceMemoryResource::from_registry(uuid)?, &pool));
    assert_eq!(pool.register()?, uuid);
    let handle = pool.allocation_handle()?;
    assert_eq!(handle.uuid(), uuid);
    let found = DeviceMemoryResource::from_allocation_handle(&machine, handle)?;
    assert!(Arc::ptr_eq(&found, &pool), "the exporter is known: nothing is imported");
    let error = PinnedMemoryResource::from_registry(uuid).unwrap_err();
    assert!(error.to_string().contains("another kind"), "{error}");
    let wrong = PinnedMemoryResource::from_allocation_handle(&machine, pool.allocation_handle()?);
    assert!(wrong.is_err());
    drop((pool, found));
    let error = DeviceMemoryResource::from_registry(uuid).unwrap_err();
    assert!(error.to_string().contains(&uuid.to_string()), "{error}");
    Ok(())
}

#[test]
fn a_pool_of_another_kind_of_memory_is_refused_and_not_left_behind() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let device = on_device(&machine)?;
    let handle = device.allocation_handle()?;
    let error = PinnedMemoryResource::from_allocation_handle(&machine, handle).unwrap_err();
    assert!(error.to_string().contains("another kind"), "{error}");
    let host = on_host(&machine)?;
    let handle = host.allocation_handle()?;
    assert!(DeviceMemoryResource::from_allocation_handle(&machine, handle).is_err());
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

#[test]
fn a_descriptor_that_is_no_pool_is_refused() -> Result<()> {
    let machine = machine()?;
    let pool = on_device(&machine)?;
    let uuid = pool.allocation_handle()?.uuid();
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    // SAFETY: `from_parts` asks for a descriptor of a pool; this one is refused before any memory
    // is imported.
    let handle = unsafe { AllocationHandle::from_parts(reader.into(), uuid) };
    let error = DeviceMemoryResource::from_allocation_handle(&machine, handle).unwrap_err();
    assert_eq!(error.code(), Some(999));
    Ok(())
}

/// Every call of a whole exchange fails once: then nothing is in use, and the exchange works.
#[test]
fn a_failure_of_any_call_leaves_nothing_and_can_be_tried_again() -> Result<()> {
    let every_call = Sweep::new(Code::OUT_OF_MEMORY).with_destructors();
    let swept = every_call.run(pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let pool = on_device(&machine)?;
        let exchange = || -> Result<()> {
            let memory = Allocation::new(pool.clone(), 4096, &stream)?;
            let handle = pool.allocation_handle()?;
            let mapped = DeviceMemoryResource::from_allocation_handle(&machine, handle)?;
            mapped.import(&memory.descriptor()?, &stream)?.free()?;
            memory.free()
        };
        let failed = backend.watch(exchange).is_err();
        // The release of a resource that is dropped may be what failed: that is counted, not said.
        assert_eq!(failed || machine.failures_on_drop() > 0, failing.is_some());
        if backend.failed().iter().all(|call| call.operation() != Operation::FreeAsync) {
            let used = pool.pool().expect("it has one").figures()?.used_bytes;
            assert_eq!(used, 0, "call {failing:?}");
        }
        exchange()
    })?;
    assert!(swept.calls >= 8, "{swept}");
    Ok(())
}
