//! External memory managers on every back end: memory given and taken back, pending deallocations,
//! handles for other processes.

mod machines;

use std::sync::Arc;

use machines::{MIB, PAGE, fill, holds, machine};
use pagewise::resource::DeviceMemoryResource;
use pagewise::{
    Backend, Code, Device, DevicePtr, ErrorKind, HostAccess, HostTouch, Machine, Place,
    PointerAttribute, RangeAttribute, Result, Span, Stream,
};
use pagewise_managers::emm::{
    Contexts, DeviceIdentity, EmmOptions, ExternalMemoryManager, HostOnlyManager, HostOptions,
    ManagedOptions, MemoryPointer, PendingLimits, Plugin, PointerKind, ResourceManager,
    StreamOrderedManager,
};

machines::claims_hold_everywhere![
    memory_of_each_kind_carries_bytes_to_each_other,
    ordinary_memory_is_pinned_and_copied_through,
    page_locked_memory_is_unlocked_at_once_also_while_cleanup_is_deferred,
    device_memory_has_a_handle_for_other_processes,
    what_has_no_handle_says_why,
    the_host_and_fills_of_a_device_see_each_others_bytes,
    so_many_deallocations_wait_and_no_more,
    limits_change_while_deallocations_wait,
    waiting_bytes_are_a_part_of_the_device_s_memory,
    while_cleanup_is_deferred_nothing_is_freed,
    a_reset_frees_what_waits_and_names_what_is_out,
    a_limit_is_for_all_kinds_together_and_frees_what_waits,
    places_hold_from_the_start_or_there_is_no_memory,
    memory_in_stream_order_goes_in_it,
    contexts_give_the_manager_that_was_set,
    several_threads_use_a_manager,
];

const FIRST: Device = Device::FIRST;
const MAPPED: HostOptions = HostOptions { mapped: true, portable: false, write_combined: false };
const PINNED: HostOptions = HostOptions { mapped: false, ..MAPPED };

fn with(machine: &Machine, options: EmmOptions) -> Result<ResourceManager> {
    let manager = ResourceManager::direct(machine, FIRST, options)?;
    manager.initialize()?;
    Ok(manager)
}

fn direct(machine: &Machine) -> Result<ResourceManager> {
    with(machine, EmmOptions::default())
}

/// A manager that lets up to `count_max` deallocations wait.
fn waiting(machine: &Machine, count_max: usize) -> Result<ResourceManager> {
    let pending = PendingLimits { count_max, ..PendingLimits::default() };
    with(machine, EmmOptions { pending, ..EmmOptions::default() })
}

/// Whether memory is allocated there, whatever its kind.
fn is_allocated(backend: &dyn Backend, span: Span) -> bool {
    let start = backend.pointer_attribute(span.ptr, PointerAttribute::RANGE_START_ADDR);
    start == Ok(span.ptr.0)
}

fn copy(to: &MemoryPointer, from: &MemoryPointer, stream: &Stream) -> Result<()> {
    let backend = stream.machine().backend();
    let (to, from) = (to.span(), from.span());
    assert_eq!(to.bytes, from.bytes);
    // SAFETY: claims use their memory from one thread. Both ranges are live and do not overlap.
    unsafe { backend.memcpy(to.ptr, from.ptr, from.bytes, stream.handle())? };
    stream.synchronize()
}

/// Fills on the host.
fn write(memory: &MemoryPointer, value: u8) -> Result<()> {
    let (span, access) = (memory.span(), HostAccess::Write(value));
    let touch = HostTouch { span, stride_bytes: 1, access };
    // SAFETY: claims use their memory from one thread. The range is live, and the host reaches it.
    unsafe { memory.machine().backend().host_touch(touch).map(drop) }
}

/// Host memory of ours: whole pages.
struct Pages(Vec<u8>);

impl Pages {
    /// Apart from whatever else the process has page-locked: by a page on each side.
    fn new(bytes: u64, value: u8) -> Arc<Self> {
        Arc::new(Self(vec![value; (bytes + 2 * PAGE) as usize]))
    }

    fn span(&self) -> Span {
        let start = self.0.as_ptr().expose_provenance() as u64;
        Span::new(DevicePtr(start.next_multiple_of(PAGE)), self.0.len() as u64 - 2 * PAGE)
    }
}

fn pin(
    manager: &dyn ExternalMemoryManager,
    pages: &Arc<Pages>,
    mapped: bool,
) -> Result<MemoryPointer> {
    // SAFETY: `mempin` asks that the memory lives as long as its owner is kept; the owner here is
    // the memory's.
    unsafe { manager.mempin(pages.clone(), pages.span(), mapped) }
}

// ---- what it gives ----------------------------------------------------------------------------

fn memory_of_each_kind_carries_bytes_to_each_other(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let manager = direct(&machine)?;
    for bytes in [1, 4096, 3 * MIB + 17] {
        let device = manager.memalloc(bytes)?;
        let managed = manager.memallocmanaged(bytes, true)?;
        let [pinned, mapped] = [PINNED, MAPPED].map(|how| manager.memhostalloc(bytes, how));
        let (pinned, mapped) = (pinned?, mapped?);
        let kinds = [&device, &managed, &pinned, &mapped].map(|memory| memory.kind());
        let (auto_free, of_host) = (PointerKind::AutoFree, PointerKind::Pinned);
        assert_eq!(kinds, [auto_free, PointerKind::Managed, of_host, PointerKind::Mapped]);
        write(&pinned, 3)?;
        copy(&device, &pinned, &stream)?;
        copy(&managed, &device, &stream)?;
        copy(&mapped, &managed, &stream)?;
        for memory in [&managed, &mapped] {
            assert!(holds(memory.span(), 3, &stream)?, "{memory:?}");
        }
        fill(managed.span(), 4, &stream)?;
        fill(mapped.span(), 5, &stream)?;
        assert!(holds(managed.span(), 4, &stream)? && holds(mapped.span(), 5, &stream)?);
        assert_eq!(manager.base().count(), 4);
        for memory in [device, managed, pinned, mapped] {
            memory.free()?;
            assert!(memory.free().is_err(), "once");
        }
        manager.reset()?;
    }
    // At first for the host alone: no device may touch it until it is attached.
    let attached = manager.memallocmanaged(PAGE, false)?;
    write(&attached, 9)?;
    assert!(holds(attached.span(), 9, &stream)?);
    drop(attached);
    assert_eq!(manager.reset()?, []);
    assert_eq!((manager.base().count(), manager.base().used_bytes()), (0, 0));
    let info = manager.get_memory_info()?;
    assert!(0 < info.free_bytes && info.free_bytes <= info.total_bytes);
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

fn ordinary_memory_is_pinned_and_copied_through(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let manager = direct(&machine)?;
    let (from, to) = (Pages::new(2 * MIB, 6), Pages::new(2 * MIB, 0));
    for mapped in [true, false] {
        let [source, target] = [&from, &to].map(|pages| pin(&manager, pages, mapped));
        let (source, target) = (source?, target?);
        let kind = if mapped { PointerKind::Mapped } else { PointerKind::Pinned };
        assert_eq!((source.kind(), source.span()), (kind, from.span()));
        let device = manager.memalloc(2 * MIB)?;
        copy(&device, &source, &stream)?;
        copy(&target, &device, &stream)?;
        assert!(holds(to.span(), 6, &stream)?);
        // A part of it, and into managed memory.
        let managed = manager.memallocmanaged(PAGE, true)?;
        copy(&managed, &source.view(5 * PAGE, Some(6 * PAGE))?, &stream)?;
        assert!(holds(managed.span(), 6, &stream)?);
        write(&target, 0)?;
    }
    manager.reset()?;
    assert_eq!((Arc::strong_count(&from), Arc::strong_count(&to)), (1, 1), "owners are let go");
    Ok(())
}

fn page_locked_memory_is_unlocked_at_once_also_while_cleanup_is_deferred(
    backend: &Arc<dyn Backend>,
) -> Result<()> {
    let (machine, _) = machine(backend)?;
    let manager = direct(&machine)?;
    let pages = Pages::new(8 * PAGE, 1);
    let deferred = manager.defer_cleanup();
    for mapped in [true, false, true] {
        let pinned = pin(&manager, &pages, mapped)?;
        let again = pin(&manager, &pages, mapped).unwrap_err();
        assert_eq!(again.code(), Some(Code::HOST_MEMORY_ALREADY_REGISTERED));
        assert_eq!((Arc::strong_count(&pages), manager.base().count()), (2, 1));
        assert!(is_allocated(&**backend, pages.span()));
        let view = pinned.view(1, None)?;
        drop(pinned);
        assert!(is_allocated(&**backend, pages.span()), "a view holds it");
        drop(view);
        assert!(!is_allocated(&**backend, pages.span()));
        assert_eq!((Arc::strong_count(&pages), manager.base().count()), (1, 0));
    }
    deferred.end()?;
    // What the driver gave is not locked again.
    let managed = manager.memallocmanaged(PAGE, true)?;
    // SAFETY: `mempin` asks for host memory. Managed memory is refused before it is registered,
    // which is the claim.
    let answer = unsafe { manager.mempin(pages.clone(), managed.span(), true) };
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidValue);
    assert_eq!((Arc::strong_count(&pages), manager.base().count()), (1, 1));
    drop(managed);
    manager.reset().map(drop)
}

fn the_host_and_fills_of_a_device_see_each_others_bytes(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let manager = direct(&machine)?;
    let kinds = [manager.memallocmanaged(3 * PAGE, true), manager.memhostalloc(3 * PAGE, MAPPED)];
    for memory in kinds {
        let memory = memory?;
        assert_eq!(memory.host_address(), Some(memory.device_ptr().0));
        memory.fill(1, &stream)?;
        memory.view(PAGE, Some(2 * PAGE))?.fill(2, &stream)?;
        let bytes = memory.read()?;
        let (page, third) = (PAGE as usize, 2 * PAGE as usize);
        assert_eq!((bytes[page - 1], bytes[page], bytes[third - 1], bytes[third]), (1, 2, 2, 1));
        assert!(memory.fill(3, &stream).is_err() && memory.free().is_err(), "while it is seen");
        drop(bytes);
        // A recording declares one byte of each page of a view, and not the bytes that it writes:
        // this one is another.
        memory.write()?[5] = 7;
        assert_eq!(memory.read()?[5], 7);
        memory.free()?;
    }
    let device = manager.memalloc(PAGE)?;
    device.fill(4, &stream)?;
    let copied = manager.memhostalloc(PAGE, PINNED)?;
    copy(&copied, &device, &stream)?;
    assert!(copied.read()?.iter().all(|&byte| byte == 4));
    drop((copied, device));
    manager.reset().map(drop)
}

// ---- other processes --------------------------------------------------------------------------

fn device_memory_has_a_handle_for_other_processes(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let manager = direct(&machine)?;
    let memory = manager.memalloc(4 * PAGE)?;
    let whole = manager.get_ipc_handle(&memory)?.descriptor();
    let identity = DeviceIdentity::of(&machine, FIRST)?;
    let expected = (identity, 0, 4 * PAGE);
    assert_eq!((whole.device(), whole.offset_bytes(), whole.bytes()), expected);
    assert_eq!(identity.find(&machine)?, FIRST);
    let view = memory.view(100, Some(300))?;
    let handle = manager.get_ipc_handle(&view)?;
    let part = handle.descriptor();
    assert_eq!((part.offset_bytes(), part.bytes()), (100, 200));
    assert_eq!(part.handle(), whole.handle(), "that of the allocation");
    assert_eq!(part.span_at(memory.device_ptr()), view.span());
    assert!(part.is_reached_by(&machine, FIRST)?);
    // SAFETY: `open` asks for a handle of another process. One of this process is refused before
    // any memory is opened, which is the claim.
    let error = unsafe { part.open(&machine) }.unwrap_err();
    assert_eq!(error.code(), Some(Code::INVALID_CONTEXT), "in the process that made it");
    let span = memory.span();
    drop((view, memory));
    manager.reset()?;
    assert!(is_allocated(&**backend, span), "the handle keeps it");
    drop(handle);
    manager.reset()?;
    assert!(!is_allocated(&**backend, span));
    Ok(())
}

fn what_has_no_handle_says_why(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let manager = direct(&machine)?;
    let pages = Pages::new(PAGE, 0);
    let kinds = [
        (manager.memallocmanaged(PAGE, true)?, "managed memory has no handle"),
        (manager.memallocmanaged(PAGE, false)?, "managed memory has no handle"),
        (manager.memhostalloc(PAGE, MAPPED)?, "host memory has no handle"),
        (manager.memhostalloc(PAGE, PINNED)?, "host memory has no handle"),
        (pin(&manager, &pages, true)?, "host memory has no handle"),
    ];
    for (memory, says) in &kinds {
        let error = manager.get_ipc_handle(memory).unwrap_err();
        let expected = (ErrorKind::Unsupported, None, Some(memory.span()));
        assert_eq!((error.kind(), error.code(), error.span()), expected);
        assert!(error.to_string().contains(says), "{error}");
    }
    let freed = manager.memalloc(PAGE)?;
    freed.free()?;
    let error = manager.get_ipc_handle(&freed).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    let pool = Arc::new(DeviceMemoryResource::current_pool(&machine, FIRST)?);
    let pooled = ResourceManager::over(pool, FIRST, EmmOptions::default())?;
    pooled.initialize()?;
    let memory = pooled.memalloc_on(PAGE, &stream)?;
    let error = pooled.get_ipc_handle(&memory).unwrap_err();
    assert_eq!(error.code(), Some(Code::INVALID_VALUE), "memory of pools has none");
    drop((kinds, memory));
    stream.synchronize()?;
    manager.reset().map(drop)
}

// ---- what waits -------------------------------------------------------------------------------

fn so_many_deallocations_wait_and_no_more(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let manager = waiting(&machine, 3)?;
    let give = || [manager.memalloc(PAGE), manager.memallocmanaged(PAGE, true)];
    let mut given: Vec<MemoryPointer> = give().into_iter().collect::<Result<_>>()?;
    given.extend([manager.memhostalloc(PAGE, MAPPED)?, manager.memhostalloc(PAGE, PINNED)?]);
    let spans: Vec<Span> = given.iter().map(MemoryPointer::span).collect();
    let queue = manager.base().deallocations();
    for (n, memory) in given.into_iter().enumerate() {
        assert_eq!(queue.count(), n);
        assert!(spans.iter().all(|&span| is_allocated(&**backend, span)), "{n} wait");
        drop(memory);
    }
    assert_eq!((queue.count(), queue.bytes()), (0, 0), "the fourth takes all along");
    assert!(!spans.iter().any(|&span| is_allocated(&**backend, span)));
    let eager = waiting(&machine, 0)?;
    let memory = eager.memallocmanaged(PAGE, true)?;
    let span = memory.span();
    memory.free()?;
    assert!(!is_allocated(&**backend, span), "where none may wait it goes at once");
    Ok(())
}

fn limits_change_while_deallocations_wait(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let manager = waiting(&machine, 10)?;
    let queue = manager.base().deallocations();
    for _ in 0..5 {
        drop(manager.memalloc(PAGE)?);
    }
    let fewer = PendingLimits { count_max: 2, ..queue.limits() };
    queue.set_limits(fewer)?;
    assert_eq!((queue.limits(), queue.count()), (fewer, 5), "those that wait go on waiting");
    drop(manager.memalloc(PAGE)?);
    assert_eq!(queue.count(), 0, "the next takes all along");
    let wrong = PendingLimits { ratio_max: f64::NAN, ..fewer };
    assert_eq!(queue.set_limits(wrong).unwrap_err().kind(), ErrorKind::InvalidValue);
    assert_eq!(queue.limits(), fewer);
    let none = PendingLimits { ratio_max: 0.0, ..fewer };
    queue.set_limits(none)?;
    drop(manager.memalloc(PAGE)?);
    assert_eq!(queue.count(), 0, "not a byte may wait");
    Ok(())
}

fn waiting_bytes_are_a_part_of_the_device_s_memory(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let total = backend.memory_info(FIRST.id())?.total_bytes;
    // Four MiB of whatever the device has.
    let ratio_max = (4 * MIB) as f64 / total as f64;
    let pending = PendingLimits { ratio_max, ..PendingLimits::default() };
    let manager = with(&machine, EmmOptions { pending, ..EmmOptions::default() })?;
    let queue = manager.base().deallocations();
    assert_eq!(queue.capacity_bytes(), Some(total));
    drop(manager.memalloc(2 * MIB)?);
    drop(manager.memallocmanaged(MIB, true)?);
    assert_eq!((queue.count(), queue.bytes()), (2, 3 * MIB));
    drop(manager.memhostalloc(8 * MIB, PINNED)?);
    assert_eq!((queue.count(), queue.bytes()), (3, 3 * MIB), "its bytes are not the device's");
    drop(manager.memalloc(2 * MIB)?);
    assert_eq!((queue.count(), queue.bytes()), (0, 0));
    assert_eq!((manager.base().count(), manager.base().used_bytes()), (0, 0));
    Ok(())
}

fn while_cleanup_is_deferred_nothing_is_freed(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let manager = waiting(&machine, 3)?;
    let queue = manager.base().deallocations();
    let outer = manager.defer_cleanup();
    let inner = manager.defer_cleanup();
    let mut spans = Vec::new();
    for _ in 0..20 {
        let memory = manager.memallocmanaged(16 * PAGE, true)?;
        fill(memory.span(), 2, &stream)?;
        spans.push(memory.span());
    }
    inner.end()?;
    manager.reset()?;
    assert_eq!(queue.count(), 20);
    for &span in &spans {
        // A kernel that was launched before may still read it.
        assert!(is_allocated(&**backend, span) && holds(span, 2, &stream)?);
    }
    outer.end()?;
    assert_eq!((queue.count(), manager.base().count()), (0, 0));
    assert!(!spans.iter().any(|&span| is_allocated(&**backend, span)));
    Ok(())
}

fn a_reset_frees_what_waits_and_names_what_is_out(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let manager = ResourceManager::direct(&machine, FIRST, EmmOptions::default())?;
    assert_eq!(manager.reset()?, [], "it may come first");
    assert!(manager.memalloc(PAGE).unwrap_err().to_string().contains("initialise"));
    manager.initialize()?;
    let goes = [manager.memalloc(PAGE)?, manager.memhostalloc(PAGE, PINNED)?];
    let spans = goes.each_ref().map(MemoryPointer::span);
    let (device, managed) = (manager.memalloc(PAGE)?, manager.memallocmanaged(MIB, true)?);
    let pinned = manager.memhostalloc(PAGE, PINNED)?;
    fill(managed.span(), 7, &stream)?;
    drop(goes);
    assert!(spans.iter().all(|&span| is_allocated(&**backend, span)), "they wait");
    let mut leaks = manager.reset()?;
    leaks.sort_by_key(|leak| leak.kind);
    let named: Vec<_> = leaks.iter().map(|leak| (leak.kind, leak.span)).collect();
    let mut out = [&device, &managed, &pinned].map(|memory| (memory.kind(), memory.span()));
    out.sort();
    assert_eq!(named, out);
    assert!(!spans.iter().any(|&span| is_allocated(&**backend, span)), "all that waited");
    assert_eq!(manager.reset()?, [], "once");
    assert!(holds(managed.span(), 7, &stream)?, "what is out stays usable");
    // Memory may outlive its manager.
    let spans = [&device, &managed, &pinned].map(MemoryPointer::span);
    drop(manager);
    drop((device, managed, pinned));
    assert!(!spans.iter().any(|&span| is_allocated(&**backend, span)));
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

fn a_limit_is_for_all_kinds_together_and_frees_what_waits(
    backend: &Arc<dyn Backend>,
) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let options = EmmOptions { limit_bytes: 10_000, ..EmmOptions::default() };
    let manager = with(&machine, options)?;
    let kept = manager.memalloc(4000)?;
    let waits = manager.memallocmanaged(5000, true)?;
    let span = waits.span();
    drop(waits);
    assert_eq!(manager.base().used_bytes(), 9000, "it waits, and is out until then");
    let more = manager.memhostalloc(6000, PINNED)?;
    assert!(!is_allocated(&**backend, span), "it was freed for it");
    assert_eq!(manager.base().used_bytes(), 10_000);
    let error = manager.memalloc(1).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::OutOfMemory, None));
    assert!(error.to_string().contains("limit of 10000"), "{error}");
    assert_eq!(manager.memalloc(0).unwrap_err().kind(), ErrorKind::InvalidValue);
    drop((kept, more));
    manager.reset()?;
    assert_eq!(manager.base().used_bytes(), 0);
    Ok(())
}

// ---- places, streams, contexts ----------------------------------------------------------------

fn places_hold_from_the_start_or_there_is_no_memory(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let manager = direct(&machine)?;
    let options = ManagedOptions {
        preferred_location: Some(Place::HOST),
        accessed_by: vec![FIRST.into()],
        read_mostly: false,
    };
    let memory = manager.memallocmanaged_with(2 * MIB, &options)?;
    let read = |attribute| backend.range_attribute(memory.span(), attribute);
    assert_eq!(read(RangeAttribute::PREFERRED_LOCATION), Ok(-1));
    let mut mapped_by = [-2; 3];
    backend.range_accessed_by(memory.span(), &mut mapped_by)?;
    assert_eq!(mapped_by, [0, -2, -2]);
    let duplicated = ManagedOptions { read_mostly: true, ..ManagedOptions::default() };
    let duplicated = manager.memallocmanaged_with(2 * MIB, &duplicated)?;
    assert_eq!(backend.range_attribute(duplicated.span(), RangeAttribute::READ_MOSTLY), Ok(1));
    let nowhere = ManagedOptions { accessed_by: vec![Device::new(99)?.into()], ..options };
    let error = manager.memallocmanaged_with(PAGE, &nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidDevice);
    assert_eq!(manager.base().count(), 2);
    drop((memory, duplicated));
    manager.reset().map(drop)
}

fn memory_in_stream_order_goes_in_it(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let pool = Arc::new(DeviceMemoryResource::current_pool(&machine, FIRST)?);
    let manager = ResourceManager::over(pool, FIRST, EmmOptions::default())?;
    manager.initialize()?;
    let deferred = manager.defer_cleanup();
    let staging = manager.memhostalloc(MIB, PINNED)?;
    for value in 1..5 {
        let memory = manager.memalloc_on(MIB, &stream)?;
        fill(memory.span(), value, &stream)?;
        copy(&staging, &memory, &stream)?;
        assert!(holds(staging.span(), value, &stream)?);
        drop(memory);
        assert_eq!(manager.base().count(), 1, "also while cleanup is deferred");
    }
    deferred.end()?;
    let theirs = Stream::legacy_default(&Machine::from(pagewise::sim()?));
    assert!(manager.memalloc_on(PAGE, &theirs).is_err(), "of another machine");
    drop(staging);
    manager.reset()?;
    stream.synchronize()
}

fn contexts_give_the_manager_that_was_set(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let contexts = Contexts::new(&machine);
    let plugin = Plugin::new("eager", 1, |machine, device| {
        let pending = PendingLimits { count_max: 0, ..PendingLimits::default() };
        let options = EmmOptions { pending, ..EmmOptions::default() };
        Ok(Arc::new(ResourceManager::direct(machine, device, options)?))
    });
    contexts.set_memory_manager(plugin.clone())?;
    let manager = contexts.enter(FIRST)?;
    let memory = manager.memallocmanaged(MIB, true)?;
    assert!(Arc::ptr_eq(&manager, &contexts.enter(FIRST)?));
    assert!(contexts.set_memory_manager(Plugin::default()).is_err(), "a context exists");
    assert_eq!(contexts.enter(Device::new(99)?).unwrap_err().kind(), ErrorKind::InvalidDevice);
    let leaks = contexts.close()?;
    assert_eq!(leaks.iter().map(|leak| leak.span).collect::<Vec<_>>(), [memory.span()]);
    contexts.set_memory_manager(Plugin::default())?;
    let host = HostOnlyManager::new(&machine, FIRST, EmmOptions::default())?;
    assert!(host.memallocmanaged(PAGE, true).is_err(), "not before it is initialised");
    memory.free()
}

/// Memory of all kinds from several threads, with deferrals and resets. Each allocation keeps its
/// own contents.
fn several_threads_use_a_manager(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let manager = direct(&machine)?;
    let work = |seed: u8| -> Result<()> {
        let stream = Stream::new(&machine, FIRST)?;
        let mut kept: Vec<(u8, MemoryPointer)> = Vec::new();
        for step in 0..30_u8 {
            let value = 1 + seed * 40 + step;
            let bytes = 1 + u64::from(value) * 104_729 % 100_000;
            let memory = match step % 3 {
                0 => manager.memalloc(bytes)?,
                1 => manager.memhostalloc(bytes, MAPPED)?,
                _ => manager.memallocmanaged(bytes, true)?,
            };
            let deferred = (step % 5 == seed).then(|| manager.defer_cleanup());
            fill(memory.span(), value, &stream)?;
            kept.push((value, memory));
            if step % 2 == 1 {
                let (value, memory) = kept.swap_remove(usize::from(step) % kept.len());
                let staging = manager.memhostalloc(memory.bytes(), MAPPED)?;
                fill(staging.span(), 0, &stream)?;
                copy(&staging, &memory, &stream)?;
                assert!(holds(staging.span(), value, &stream)?, "{memory:?}");
            }
            if step % 10 == seed {
                manager.reset()?;
            }
            drop(deferred);
        }
        Ok(())
    };
    let answers: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panics")).collect()
    });
    answers.into_iter().collect::<Result<()>>()?;
    manager.reset()?;
    assert_eq!((manager.base().used_bytes(), manager.base().count()), (0, 0));
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}
