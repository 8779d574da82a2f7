//! Handles of a manager's memory for other processes. The other process is a mock, which sees the
//! devices in another order.
#![cfg(feature = "emm")]

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::mock::MockBackend;
use pagewise::resource::{DeviceMemoryResource, SubAllocator};
use pagewise::{
    Backend, Capabilities, Code, Device, DeviceAttribute, DeviceId, DevicePtr, DriverVersion,
    ErrorKind, Machine, MemoryInfo, PointerAttribute, Result, SimBackend, SimConfig, Span,
};
use pagewise_managers::emm::{
    DeviceIdentity, EmmOptions, ExternalMemoryManager, IpcDescriptor, MemoryPointer, PointerKind,
    ResourceManager,
};

const BASE: DevicePtr = DevicePtr(1 << 20);
const COPY: DevicePtr = DevicePtr(1 << 30);

type Injected = Arc<FaultInjector<SimBackend>>;

/// A machine of two devices.
fn injected() -> Result<(Injected, Machine)> {
    let backend = Arc::new(FaultInjector::around(SimBackend::new(SimConfig::h200().devices(2))?));
    let machine = Machine::from(&backend);
    Ok((backend, machine))
}

fn direct(machine: &Machine, device: Device) -> Result<ResourceManager> {
    let manager = ResourceManager::direct(machine, device, EmmOptions::default())?;
    manager.initialize()?;
    Ok(manager)
}

fn second() -> Device {
    Device::new(1).expect("in range")
}

/// A message about bytes 512 to 1000 of an allocation on the first device.
fn sent() -> Result<IpcDescriptor> {
    let (_, maker) = injected()?;
    let manager = direct(&maker, Device::FIRST)?;
    Ok(manager.get_ipc_handle(&manager.memalloc(1000)?.view(512, None)?)?.descriptor())
}

/// Another process on the exporter's machine, which sees its two devices in the other order. The
/// exporter's memory has `extent` bytes, and devices are peers if `peers` says so.
fn importer(extent: u64, peers: bool) -> MockBackend {
    let mut mock = MockBackend::new();
    mock.expect_capabilities()
        .returning(|| Capabilities::of_driver("mock", DriverVersion::CUDA_13_0));
    mock.expect_device_count().returning(|| Ok(2));
    mock.expect_device_attribute().returning(|device, attribute| {
        Ok(if attribute == DeviceAttribute::PCI_BUS_ID { 2 - device.0 } else { 0 })
    });
    mock.expect_can_access_peer().returning(move |_, _| Ok(peers));
    mock.expect_memory_info()
        .returning(|_| Ok(MemoryInfo { free_bytes: 32 << 20, total_bytes: 64 << 20 }));
    mock.expect_pointer_attribute()
        .withf(|ptr, attribute| (*ptr, *attribute) == (BASE, PointerAttribute::RANGE_SIZE))
        .returning(move |_, _| Ok(extent));
    mock
}

/// The memory is opened on that device, and closed once.
fn opens_on(mock: &mut MockBackend, device: DeviceId) {
    mock.expect_ipc_open_mem_handle()
        .withf(move |on, _| *on == device)
        .times(1)
        .returning(|_, _| Ok(BASE));
    mock.expect_ipc_close_mem_handle().withf(|ptr| *ptr == BASE).times(1).returning(|_| Ok(()));
}

fn open(message: IpcDescriptor, machine: &Machine) -> Result<MemoryPointer> {
    // SAFETY: `open` asks for memory that its exporter keeps; the mock has none.
    unsafe { message.open(machine) }
}

// ---- the exporter -----------------------------------------------------------------------------

#[test]
fn a_handle_keeps_its_memory_when_every_pointer_has_gone() -> Result<()> {
    let (backend, machine) = injected()?;
    let manager = direct(&machine, Device::FIRST)?;
    let memory = manager.memalloc(1000)?;
    let handle = manager.get_ipc_handle(&memory)?;
    drop(memory);
    manager.reset()?;
    let frees = || {
        let calls = backend.take_calls();
        calls.iter().filter(|call| call.operation() == Operation::Free).count()
    };
    assert_eq!((frees(), manager.base().count()), (0, 1), "the handle keeps it");
    assert!(!handle.memory().is_freed());
    drop(handle);
    manager.reset()?;
    assert_eq!((frees(), manager.base().count()), (1, 0));
    Ok(())
}

#[test]
fn a_handle_keeps_its_memory_when_every_owner_has_gone_and_when_it_is_freed() -> Result<()> {
    let (_, machine) = injected()?;
    let manager = direct(&machine, Device::FIRST)?;
    let memory = manager.memalloc(1000)?;
    let owner = memory.own();
    let handles = [manager.get_ipc_handle(&memory)?, manager.get_ipc_handle(&memory)?];
    let error = memory.free().unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    assert!(error.to_string().contains("2 host views or handles"), "{error}");
    drop(owner);
    let [one, two] = handles;
    drop(one);
    assert!(!memory.is_freed(), "the second handle keeps it");
    assert!(manager.get_ipc_handle(&memory).is_err(), "its owners have gone: it is kept no longer");
    drop(two);
    assert!(memory.is_freed() && memory.free().is_err());
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

#[test]
fn a_handle_is_of_the_allocation_and_says_where_in_it_the_memory_is() -> Result<()> {
    let (backend, machine) = injected()?;
    let pieces =
        SubAllocator::new(DeviceMemoryResource::direct(&machine, Device::FIRST)?, 1 << 20)?;
    let manager = ResourceManager::over(Arc::new(pieces), Device::FIRST, EmmOptions::default())?;
    manager.initialize()?;
    let (one, two) = (manager.memalloc(1000)?, manager.memalloc(1000)?);
    let message = |memory| manager.get_ipc_handle(memory).map(|handle| handle.descriptor());
    let (first, second) = (message(&one)?, message(&two)?);
    assert_eq!(first.handle(), second.handle(), "one allocation");
    assert_eq!(first.bytes(), 1000);
    let apart = two.device_ptr().0 - one.device_ptr().0;
    assert_eq!(second.offset_bytes() - first.offset_bytes(), apart);
    let view = message(&two.view(100, Some(300))?)?;
    assert_eq!((view.offset_bytes(), view.bytes()), (second.offset_bytes() + 100, 200));
    backend.arm(Fault::new(Code::NOT_PERMITTED).on(Operation::IpcMemHandle));
    let error = manager.get_ipc_handle(&one).unwrap_err();
    assert_eq!((error.code(), error.span()), (Some(Code::NOT_PERMITTED), Some(one.span())));
    one.free()?;
    Ok(())
}

/// The memory says which device it is on, not its manager.
#[test]
fn a_handle_names_the_device_of_its_memory() -> Result<()> {
    let (_, machine) = injected()?;
    let identities = [Device::FIRST, second()].map(|on| DeviceIdentity::of(&machine, on));
    let [one, two] = identities;
    let (one, two) = (one?, two?);
    assert_ne!(one, two);
    assert_eq!((one.find(&machine)?, two.find(&machine)?), (Device::FIRST, second()));
    for (device, identity) in [(Device::FIRST, one), (second(), two)] {
        let of_device = direct(&machine, device)?;
        let resource = Arc::new(DeviceMemoryResource::direct(&machine, device)?);
        let of_another = ResourceManager::over(resource, Device::FIRST, EmmOptions::default())?;
        of_another.initialize()?;
        for manager in [&of_device, &of_another] {
            let message = manager.get_ipc_handle(&manager.memalloc(100)?)?.descriptor();
            assert_eq!(message.device(), identity);
        }
    }
    Ok(())
}

#[cfg(feature = "serde")]
#[test]
fn a_message_comes_through_as_text_and_no_other_text_is_one() -> Result<()> {
    let message = sent()?;
    let text = serde_json::to_string(&message).expect("plain data");
    let read: IpcDescriptor = serde_json::from_str(&text).expect("what was written");
    assert_eq!((&read, read.offset_bytes(), read.bytes()), (&message, 512, 488));
    let cut = text.replace("0\"", "\"");
    assert!(serde_json::from_str::<IpcDescriptor>(&cut).is_err(), "{cut}");
    Ok(())
}

// ---- the importer -----------------------------------------------------------------------------

/// Ordinals differ between processes (`CUDA_VISIBLE_DEVICES`): the exporter's device 0 is 1 here.
#[test]
fn the_identity_decides_which_device_opens_memory_and_the_last_pointer_closes_it() -> Result<()> {
    let mut mock = importer(1000, true);
    opens_on(&mut mock, DeviceId(1));
    let machine = Machine::from(Arc::new(mock));
    let opened = open(sent()?, &machine)?;
    assert_eq!(opened.span(), Span::new(BASE.offset(512), 488));
    assert_eq!(opened.kind(), PointerKind::Memory);
    let view = opened.view(0, Some(8))?;
    drop(opened);
    view.free()
}

#[test]
fn a_device_that_the_process_does_not_see_is_named() -> Result<()> {
    let (_, maker) = injected()?;
    let manager = direct(&maker, second())?;
    let message = manager.get_ipc_handle(&manager.memalloc(100)?)?.descriptor();
    let importer = Machine::from(pagewise::sim()?);
    let error = open(message, &importer).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidDevice, None));
    assert!(error.to_string().contains("0000:02:00"), "{error}");
    Ok(())
}

#[test]
fn a_message_about_no_bytes_opens_nothing() -> Result<()> {
    let (_, maker) = injected()?;
    let manager = direct(&maker, Device::FIRST)?;
    let empty = manager.memalloc(1000)?.view(512, Some(512))?;
    let message = manager.get_ipc_handle(&empty)?.descriptor();
    let mut mock = importer(1000, true);
    opens_on(&mut mock, DeviceId(1));
    let error = open(message, &Machine::from(Arc::new(mock))).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    Ok(())
}

#[test]
fn a_message_that_names_more_than_the_allocation_has_opens_nothing() -> Result<()> {
    let mut mock = importer(999, true);
    opens_on(&mut mock, DeviceId(1));
    let error = open(sent()?, &Machine::from(Arc::new(mock))).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    assert!(error.to_string().contains("999 bytes"), "{error}");
    Ok(())
}

#[test]
fn a_device_opens_memory_of_a_peer_and_of_no_other() -> Result<()> {
    let mut mock = importer(1000, true);
    opens_on(&mut mock, DeviceId(0));
    let machine = Machine::from(Arc::new(mock));
    // SAFETY: `open_on` asks for memory that its exporter keeps; the mock has none.
    let opened = unsafe { sent()?.open_on(&machine, Device::FIRST)? };
    assert_eq!(opened.span(), Span::new(BASE.offset(512), 488));
    let machine = Machine::from(Arc::new(importer(1000, false)));
    assert!(sent()?.is_reached_by(&machine, second())?, "it is the memory's own");
    // SAFETY: `open_on` asks for memory that its exporter keeps; the mock has none.
    let error = unsafe { sent()?.open_on(&machine, Device::FIRST) }.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None));
    Ok(())
}

#[test]
fn memory_that_a_device_does_not_reach_is_copied_there_and_closed() -> Result<()> {
    for fails in [false, true] {
        let mut mock = importer(1000, false);
        opens_on(&mut mock, DeviceId(1));
        mock.expect_alloc_device()
            .withf(|device, bytes| (*device, *bytes) == (DeviceId(0), 488))
            .times(1)
            .returning(|_, _| Ok(COPY));
        mock.expect_memcpy()
            .withf(|to, from, bytes, _| (*to, *from, *bytes) == (COPY, BASE.offset(512), 488))
            .times(1)
            .returning(move |_, _, _, _| match fails {
                true => Err(pagewise::Error::from_code("memcpy", Code::ILLEGAL_ADDRESS)),
                false => Ok(()),
            });
        mock.expect_stream_synchronize().returning(|_| Ok(()));
        mock.expect_free().withf(|ptr| *ptr == COPY).times(1).returning(|_| Ok(()));
        let machine = Machine::from(Arc::new(mock));
        let manager = direct(&machine, Device::FIRST)?;
        let give = |bytes| manager.memalloc(bytes);
        // SAFETY: `open_or_copy` asks for memory that its exporter keeps; the mock has none.
        let answer = unsafe { sent()?.open_or_copy(&machine, Device::FIRST, give) };
        assert_eq!(answer.is_err(), fails);
        if let Ok(copy) = answer {
            assert_eq!((copy.span(), copy.kind()), (Span::new(COPY, 488), PointerKind::AutoFree));
        }
        manager.reset()?;
    }
    let mut mock = importer(1000, true);
    opens_on(&mut mock, DeviceId(0));
    let machine = Machine::from(Arc::new(mock));
    let manager = direct(&machine, Device::FIRST)?;
    let give = |bytes| manager.memalloc(bytes);
    // SAFETY: `open_or_copy` asks for memory that its exporter keeps; the mock has none.
    let opened = unsafe { sent()?.open_or_copy(&machine, Device::FIRST, give)? };
    assert_eq!(opened.device_ptr(), BASE.offset(512), "a peer opens it");
    Ok(())
}

#[test]
fn a_copy_goes_into_memory_of_the_right_size_that_nothing_else_uses() -> Result<()> {
    let machine = Machine::from(Arc::new(importer(1000, false)));
    let made_up = |bytes| {
        let span = Span::new(COPY, bytes);
        Ok(MemoryPointer::new(&machine, PointerKind::Memory, span, None))
    };
    let attempt = |give: &dyn Fn(u64) -> Result<MemoryPointer>| {
        // SAFETY: `open_or_copy` asks for memory that its exporter keeps; the mock has none.
        unsafe { sent()?.open_or_copy(&machine, Device::FIRST, give) }
    };
    let error = attempt(&|bytes| made_up(bytes)).unwrap_err();
    assert!(error.to_string().contains("vouch"), "{error}");
    let error = attempt(&|bytes| made_up(bytes - 1)).unwrap_err();
    assert!(error.to_string().contains("488 bytes were asked for, not 487"), "{error}");
    Ok(())
}

#[test]
fn the_process_that_made_a_handle_does_not_open_it() -> Result<()> {
    let (backend, machine) = injected()?;
    let manager = direct(&machine, second())?;
    let memory = manager.memalloc(100)?;
    let handle = manager.get_ipc_handle(&memory)?;
    let error = open(handle.descriptor(), &machine).unwrap_err();
    assert_eq!(error.code(), Some(Code::INVALID_CONTEXT));
    assert_eq!(backend.device_count()?, 2);
    Ok(())
}
