//! Memory on the host, filled memory, addresses, and what a device can do.
#![cfg(feature = "emm")]

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::mock::{MockBackend, permit_machine};
use pagewise::resource::ManagedMemoryResource;
use pagewise::{
    Code, Device, DeviceAttribute, DevicePtr, ErrorKind, HostViews, Machine, MemoryInfo,
    PointerAttribute, Result, SimBackend, SimConfig, Span, Stream,
};
use pagewise_managers::emm::{
    EmmOptions, ExternalMemoryManager, HostOnlyManager, HostOptions, MemoryPointer, PointerKind,
    ResourceManager, StreamOrderedManager,
};

const FIRST: Device = Device::FIRST;
const MAPPED: HostOptions = HostOptions { mapped: true, portable: false, write_combined: false };
const PINNED: HostOptions = HostOptions { mapped: false, ..MAPPED };

type Injected = Arc<FaultInjector<Arc<SimBackend>>>;

fn injected() -> Result<(Injected, ResourceManager, Stream)> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let manager = ResourceManager::direct(&machine, FIRST, EmmOptions::default())?;
    manager.initialize()?;
    let stream = Stream::new(&machine, FIRST)?;
    Ok((backend, manager, stream))
}

fn host_memory(manager: &ResourceManager) -> Result<[MemoryPointer; 3]> {
    Ok([
        manager.memallocmanaged(10_000, true)?,
        manager.memhostalloc(10_000, MAPPED)?,
        manager.memhostalloc(10_000, PINNED)?,
    ])
}

// ---- views and fills --------------------------------------------------------------------------

#[test]
fn the_host_and_fills_of_a_device_see_each_others_bytes() -> Result<()> {
    let (_, manager, stream) = injected()?;
    for memory in host_memory(&manager)? {
        memory.write()?.fill(3);
        memory.view(5000, Some(6000))?.fill(4, &stream)?;
        let bytes = memory.read()?;
        assert_eq!((bytes.len(), bytes[4999], bytes[5000]), (10_000, 3, 4), "{memory:?}");
        assert_eq!((bytes[5999], bytes[6000]), (4, 3));
        drop(bytes);
        let part = memory.view(9990, None)?;
        part.write()?.copy_from_slice(b"0123456789");
        assert_eq!(part.read()?[..], *b"0123456789");
        assert!(memory.view(7, Some(7))?.read()?.is_empty());
        memory.free()?;
    }
    Ok(())
}

#[test]
fn fills_of_2_and_4_bytes_need_whole_values() -> Result<()> {
    let (_, manager, stream) = injected()?;
    for memory in host_memory(&manager)? {
        memory.fill_u16(0x0201, &stream)?;
        memory.view(8, Some(16))?.fill_u32(0x0605_0403, &stream)?;
        let bytes = memory.read()?;
        assert_eq!(bytes[6..18], [1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 1, 2], "{memory:?}");
        drop(bytes);
        let odd = memory.view(1, Some(9))?;
        for error in [odd.fill_u16(1, &stream), memory.view(0, Some(6))?.fill_u32(1, &stream)] {
            assert_eq!(error.unwrap_err().code(), Some(Code::INVALID_VALUE));
        }
        assert_eq!(memory.read()?[0], 1, "refused fills change nothing");
    }
    Ok(())
}

#[test]
fn a_view_declares_the_pages_of_managed_memory_that_it_shows() -> Result<()> {
    let (backend, manager, _) = injected()?;
    let memory = manager.memallocmanaged(10_000, true)?;
    let _ = backend.take_calls();
    memory.view(0, Some(10))?.write()?[0] = 1;
    memory.view(5000, None)?.read()?;
    let calls = backend.take_calls();
    let touched = calls.iter().filter(|call| call.operation() == Operation::HostTouch);
    let places: Vec<u64> =
        touched.filter_map(|call| Some(call.span()?.ptr.0 - memory.device_ptr().0)).collect();
    assert_eq!(places, [0, 5000, 8192], "the first page; then the second and the third");
    Ok(())
}

#[test]
fn many_views_read_or_one_writes_and_nothing_fills_meanwhile() -> Result<()> {
    let (_, manager, stream) = injected()?;
    for memory in host_memory(&manager)? {
        let part = memory.view(100, Some(200))?;
        let readers = (memory.read()?, part.read()?);
        for error in [part.write().err(), part.fill(1, &stream).err()] {
            let error = error.expect("it is being read");
            assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
            assert_eq!(error.span(), Some(part.span()));
        }
        drop(readers);
        let writer = part.write()?;
        assert_eq!(writer.len(), 100, "a view that writes can be read too");
        assert!(memory.read().is_err() && memory.write().is_err());
        assert!(memory.fill(1, &stream).is_err());
        drop(writer);
        part.fill(1, &stream)?;
        assert_eq!(part.read()?[0], 1);
    }
    Ok(())
}

#[test]
fn a_view_keeps_its_memory_until_it_goes() -> Result<()> {
    let (backend, manager, _) = injected()?;
    let frees = || {
        let calls = backend.take_calls();
        let frees = [Operation::Free, Operation::FreePinned];
        calls.iter().filter(|call| frees.contains(&call.operation())).count()
    };
    for memory in host_memory(&manager)? {
        memory.write()?.fill(7);
        let is_auto_free = memory.kind().is_auto_free();
        let (owner, view) = (memory.own(), memory.read()?);
        assert!(memory.free().unwrap_err().to_string().contains("1 host views"));
        drop(owner);
        let again = memory.read().is_ok();
        assert_eq!(again, !is_auto_free, "its last owner has gone");
        drop(memory);
        manager.reset()?;
        assert_eq!((frees(), view[9999]), (0, 7));
        drop(view);
        manager.reset()?;
        assert_eq!(frees(), 1);
    }
    assert_eq!(manager.base().count(), 0);
    Ok(())
}

#[test]
fn only_memory_that_its_maker_vouches_for_is_viewed_and_filled() -> Result<()> {
    let (_, manager, stream) = injected()?;
    let machine = stream.machine();
    let owner = Arc::new(vec![0_u8; 8192]);
    let span = Span::new(DevicePtr(owner.as_ptr().expose_provenance() as u64), 8192);
    // SAFETY: `mempin` asks that the memory lives as long as its owner is kept; the owner here is
    // the memory's.
    let pinned = unsafe { manager.mempin(owner.clone(), span, true)? };
    let made_up =
        MemoryPointer::new(machine, PointerKind::Mapped, Span::new(DevicePtr(8), 8), None);
    for memory in [&pinned, &made_up] {
        let errors = [memory.read().err(), memory.write().err(), memory.fill(1, &stream).err()];
        for error in errors {
            assert!(error.expect("others may use it").to_string().contains("vouch"));
        }
    }
    // SAFETY: `vouch` asks for live memory that no safe code uses otherwise. The vector lives until
    // the memory is unlocked, and is not used meanwhile.
    let vouched = unsafe { pinned.vouch(None) };
    vouched.fill(9, &stream)?;
    assert_eq!(vouched.read()?[8191], 9);
    vouched.free()?;
    assert_eq!(owner[0], 9);
    let device = manager.memalloc(100)?;
    device.fill(1, &stream)?;
    assert_eq!(device.read().unwrap_err().kind(), ErrorKind::Unsupported);
    Ok(())
}

#[test]
fn addresses_that_are_not_the_hosts_give_no_view() -> Result<()> {
    let mut mock = MockBackend::new();
    mock.expect_alloc_managed().returning(|_, _| Ok(DevicePtr(4096)));
    mock.expect_memory_info()
        .returning(|_| Ok(MemoryInfo { free_bytes: 32 << 20, total_bytes: 64 << 20 }));
    permit_machine(&mut mock);
    let machine = Machine::from(Arc::new(mock));
    assert_eq!(machine.host_views(), HostViews::Absent);
    let host = HostOnlyManager::new(&machine, FIRST, EmmOptions::default())?;
    host.initialize()?;
    let memory = host.memallocmanaged(100, true)?;
    assert_eq!(memory.read().unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(memory.write().unwrap_err().kind(), ErrorKind::Unsupported);
    Ok(())
}

#[test]
fn memory_in_stream_order_is_viewed_after_it_has_come() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let pool = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    let manager = ResourceManager::over(pool, FIRST, EmmOptions::default())?;
    manager.initialize()?;
    let (one, two) = (Stream::new(&machine, FIRST)?, Stream::new(&machine, FIRST)?);
    let memory = manager.memalloc_on(4096, &one)?;
    let has = |operation| backend.take_calls().iter().any(|call| call.operation() == operation);
    let _ = backend.take_calls();
    memory.fill(2, &two)?;
    assert!(has(Operation::StreamWaitEvent), "a fill on another stream comes after it");
    assert_eq!(memory.read()?[4095], 2);
    assert!(has(Operation::StreamSynchronize), "so does a view");
    memory.free()
}

/// The fill may still go on: freed memory would be another's soon.
#[test]
fn memory_with_a_fill_that_cannot_be_waited_for_stays() -> Result<()> {
    let (backend, manager, stream) = injected()?;
    let memory = manager.memallocmanaged(100, true)?;
    backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::Memset));
    assert!(memory.fill(1, &stream).is_err());
    assert!(memory.read().is_ok(), "no fill has begun");
    backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::StreamSynchronize));
    assert_eq!(memory.fill(1, &stream).unwrap_err().span(), Some(memory.span()));
    assert!(memory.read().is_err() && memory.free().is_err());
    let other = Stream::legacy_default(&Machine::from(pagewise::sim()?));
    assert!(manager.memalloc(8)?.fill(1, &other).is_err(), "a stream of another machine");
    Ok(())
}

// ---- addresses and devices --------------------------------------------------------------------

/// A machine where devices reach page-locked memory 1 MiB further on.
fn apart(can_map: i32) -> MockBackend {
    let mut mock = MockBackend::new();
    mock.expect_memory_info()
        .returning(|_| Ok(MemoryInfo { free_bytes: 32 << 20, total_bytes: 64 << 20 }));
    mock.expect_device_attribute()
        .withf(|_, attribute| *attribute == DeviceAttribute::CAN_MAP_HOST_MEMORY)
        .returning(move |_, _| Ok(can_map));
    mock.expect_pointer_attribute()
        .withf(|_, attribute| *attribute == PointerAttribute::DEVICE_POINTER)
        .returning(|ptr, _| Ok(ptr.0 + (1 << 20)));
    mock
}

#[test]
fn mapped_memory_has_an_address_for_the_host_and_one_for_devices() -> Result<()> {
    const HOST: DevicePtr = DevicePtr(0x7000);
    let mut mock = apart(1);
    mock.expect_alloc_pinned().returning(|_, _| Ok(HOST));
    mock.expect_host_register().returning(|_, _| Ok(()));
    mock.expect_free_pinned().withf(|ptr| *ptr == HOST).times(2).returning(|_| Ok(()));
    mock.expect_host_unregister().withf(|ptr| *ptr == HOST).times(2).returning(|_| Ok(()));
    permit_machine(&mut mock);
    let machine = Machine::from(Arc::new(mock));
    let host = HostOnlyManager::new(&machine, FIRST, EmmOptions::default())?;
    host.initialize()?;
    for (mapped, device) in [(true, 0x10_7000), (false, 0x7000)] {
        let options = HostOptions { mapped, ..PINNED };
        let span = Span::new(HOST, 100);
        // SAFETY: `mempin` asks for memory that lives while its owner is kept; the mock uses none.
        let pin = || unsafe { host.mempin(Arc::new(()), span, mapped) };
        let gives: [&dyn Fn() -> Result<MemoryPointer>; 2] =
            [&|| host.memhostalloc(100, options), &pin];
        for give in gives {
            let memory = give()?;
            assert_eq!((memory.device_ptr().0, memory.host_address()), (device, Some(0x7000)));
            let part = memory.view(16, Some(32))?;
            assert_eq!((part.span().ptr.0, part.host_address()), (device + 16, Some(0x7010)));
            memory.free()?;
            host.reset()?;
        }
    }
    let device = MemoryPointer::new(&machine, PointerKind::Memory, Span::new(HOST, 8), None);
    assert_eq!(device.host_address(), None);
    Ok(())
}

#[test]
fn a_device_that_cannot_map_host_memory_is_not_asked_to() -> Result<()> {
    let mut mock = apart(0);
    mock.expect_host_register().times(1).returning(|_, _| Ok(()));
    mock.expect_host_unregister().times(1).returning(|_| Ok(()));
    permit_machine(&mut mock);
    let machine = Machine::from(Arc::new(mock));
    let host = HostOnlyManager::new(&machine, FIRST, EmmOptions::default())?;
    host.initialize()?;
    let span = Span::new(DevicePtr(0x7000), 100);
    // SAFETY: `mempin` asks for memory that lives while its owner is kept; the mock uses none.
    let pin = |mapped| unsafe { host.mempin(Arc::new(()), span, mapped) };
    let error = pin(true).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None));
    assert_eq!((error.span(), host.count()), (Some(span), 0));
    pin(false)?.free()
}

#[test]
fn a_manager_knows_the_peers_of_its_device() -> Result<()> {
    let l4 = SimConfig::profile("l4").expect("shipped");
    for (config, peers) in [(SimConfig::h200(), true), (l4, false)] {
        let machine = Machine::from(Arc::new(SimBackend::new(config.devices(2))?));
        let second = machine.device(1)?;
        let host = HostOnlyManager::new(&machine, second, EmmOptions::default())?;
        assert_eq!((host.can_access_peer(FIRST)?, host.can_access_peer(second)?), (peers, false));
        let error = host.can_access_peer(Device::new(2)?).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidDevice, None));
        assert!(host.can_map_host_memory()?);
    }
    Ok(())
}
