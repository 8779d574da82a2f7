//! Registered host memory, exported pools, handles of device memory: the refusals and their codes.
//! Imports need a second process, because driver 580 crashes on its own exports. Here are none.
//! CONTRACT-102: probes on driver 580.

use pagewise::{
    AllocationType, Backend, DeviceAccess, DeviceId, DevicePtr, DeviceTouch, HandleTypes,
    HostAllocFlags, HostRegisterFlags, Location, LocationKind, PointerAttribute, PoolHandle,
    PoolProps, ShareableHandle, Span,
};

use crate::{GPU, Managed, PAGE, STREAM, WILD, code};

const PINNED: i32 = 1;

/// Host memory of ours: whole pages.
struct Pages(Vec<u8>);

impl Pages {
    fn new(pages: u64) -> Self {
        Self(vec![7; ((pages + 1) * PAGE) as usize])
    }

    fn at(&self, offset: u64, bytes: u64) -> Span {
        let start = (self.0.as_ptr().expose_provenance() as u64).next_multiple_of(PAGE);
        Span::new(DevicePtr(start + offset), bytes)
    }
}

fn register(backend: &dyn Backend, span: Span) -> i32 {
    // SAFETY: claims keep the memory until they have unregistered it.
    code(unsafe { backend.host_register(span, HostRegisterFlags::PORTABLE) })
}

fn unregister(backend: &dyn Backend, ptr: DevicePtr) -> i32 {
    // SAFETY: no device works on the memory when claims call this.
    code(unsafe { backend.host_unregister(ptr) })
}

pub fn registered_memory_is_known_until_it_is_not(backend: &dyn Backend) {
    let pages = Pages::new(4);
    let span = pages.at(100, 2 * PAGE);
    assert_eq!(register(backend, span), 0);
    let ask = |attribute| backend.pointer_attribute(span.ptr.offset(9), attribute);
    assert_eq!(ask(PointerAttribute::RANGE_START_ADDR), Ok(span.ptr.0));
    assert_eq!(ask(PointerAttribute::RANGE_SIZE), Ok(span.bytes));
    assert_eq!(ask(PointerAttribute::IS_MANAGED), Ok(0));
    let managed = Managed::new(backend, PAGE);
    // SAFETY: only this claim uses the memory on both sides, and the two do not overlap.
    unsafe { backend.memcpy(managed.span.ptr, span.ptr, PAGE, STREAM) }.expect("both are live");
    backend.stream_synchronize(STREAM).expect("a stream");
    assert_eq!(unregister(backend, span.ptr.offset(PAGE)), 1, "not the first byte");
    assert_eq!(unregister(backend, span.ptr), 0);
    assert_eq!(unregister(backend, span.ptr), 713);
    assert_eq!(code(ask(PointerAttribute::RANGE_SIZE)), 1);
    assert_eq!(unregister(backend, DevicePtr::NULL), 1);
}

pub fn an_atomic_never_writes_host_memory_beside_what_is_registered(backend: &dyn Backend) {
    let pages = Pages::new(2);
    for (offset, bytes) in [(0, 6), (3, 5), (1, 2)] {
        let span = pages.at(offset, bytes);
        assert_eq!(register(backend, span), 0);
        let (device, access) = (DeviceId(0), DeviceAccess::AtomicAdd);
        let touch = DeviceTouch { device, span, stride_bytes: 1, access, blocks: 1, threads: 1 };
        // SAFETY: the memory is registered, and only this claim uses it.
        let answer = unsafe { backend.device_touch(touch, STREAM) };
        assert_eq!(unregister(backend, span.ptr), 0);
        assert_eq!(code(answer), 1, "{offset}+{bytes}");
    }
    assert!(pages.0.iter().all(|&byte| byte == 7));
}

pub fn a_page_is_registered_once(backend: &dyn Backend) {
    let pages = Pages::new(8);
    assert_eq!(register(backend, pages.at(0, 4 * PAGE)), 0);
    for again in [pages.at(0, 4 * PAGE), pages.at(PAGE, PAGE), pages.at(2 * PAGE, 4 * PAGE)] {
        assert_eq!(register(backend, again), 712);
    }
    assert_eq!(register(backend, pages.at(4 * PAGE, PAGE)), 0, "its neighbour");
    assert_eq!(unregister(backend, pages.at(4 * PAGE, 0).ptr), 0);
    assert_eq!(unregister(backend, pages.at(0, 0).ptr), 0);
}

pub fn memory_that_the_driver_gave_is_not_registered(backend: &dyn Backend) {
    let managed = Managed::new(backend, PAGE);
    let pinned = backend.alloc_pinned(PAGE, HostAllocFlags::empty()).expect("host memory");
    for ptr in [managed.span.ptr, pinned] {
        assert_eq!(register(backend, Span::new(ptr, PAGE)), 1);
        assert_eq!(unregister(backend, ptr), 1);
    }
    // SAFETY: no work uses the memory, and it is freed once.
    unsafe { backend.free_pinned(pinned) }.expect("pinned");
    let pages = Pages::new(1);
    let span = pages.at(0, PAGE);
    assert_eq!(register(backend, span), 0);
    // SAFETY: the frees have to refuse memory that is registered, which is the claim.
    let frees = unsafe { [backend.free(span.ptr), backend.free_pinned(span.ptr)] };
    assert_eq!(frees.map(code), [1, 1], "its owner frees it");
    assert_eq!(unregister(backend, span.ptr), 0);
}

pub fn only_flags_of_ordinary_memory_are_taken(backend: &dyn Backend) {
    let pages = Pages::new(1);
    for (flags, expected) in [(0, 0), (1, 0), (2, 0), (8, 0), (4, 1), (16, 1)] {
        let flags = HostRegisterFlags::from_bits_retain(flags);
        // SAFETY: the memory lives until it is unregistered below.
        let answer = unsafe { backend.host_register(pages.at(0, PAGE), flags) };
        assert_eq!(code(answer), expected, "{flags:?}");
        if expected == 0 {
            assert_eq!(unregister(backend, pages.at(0, 0).ptr), 0);
        }
    }
    assert_eq!(register(backend, pages.at(0, 0)), 1);
    assert_eq!(register(backend, Span::new(DevicePtr::NULL, PAGE)), 1);
}

fn pool(backend: &dyn Backend, location: Location, handle_types: HandleTypes) -> PoolHandle {
    let allocation_type = AllocationType(PINNED);
    backend
        .pool_create(PoolProps { allocation_type, location, handle_types, max_bytes: 0 })
        .expect("a pool")
}

fn close(handle: ShareableHandle) {
    #[cfg(unix)]
    {
        use std::os::fd::{FromRawFd, OwnedFd};
        // SAFETY: the descriptor has to be open and this function's to close. The call made it for
        // its caller, and no other code has it.
        drop(unsafe { OwnedFd::from_raw_fd(handle.0) });
    }
    #[cfg(not(unix))]
    let _ = handle;
}

pub fn a_pool_is_exported_in_the_way_that_it_was_made_for(backend: &dyn Backend) {
    let fd = HandleTypes::POSIX_FILE_DESCRIPTOR;
    let open = pool(backend, GPU, fd);
    let handles = [0, 1].map(|_| backend.pool_export(open, fd).expect("made for it"));
    assert_ne!(handles[0], handles[1], "each is the caller's");
    handles.into_iter().for_each(close);
    assert_eq!(code(backend.pool_export(open, HandleTypes::empty())), 1);
    let closed = pool(backend, GPU, HandleTypes::empty());
    assert_eq!(code(backend.pool_export(closed, fd)), 1);
    for pool in [open, closed] {
        // SAFETY: the claim does not use the handle again.
        unsafe { backend.pool_destroy(pool) }.expect("live");
    }
    let on_host = |kind| PoolProps {
        allocation_type: AllocationType(PINNED),
        location: Location { kind, id: 0 },
        handle_types: fd,
        max_bytes: 0,
    };
    assert_eq!(code(backend.pool_create(on_host(LocationKind::HOST))), 1);
}

pub fn only_first_bytes_of_memory_of_exported_pools_are_exported(backend: &dyn Backend) {
    let open = pool(backend, GPU, HandleTypes::POSIX_FILE_DESCRIPTOR);
    let closed = pool(backend, GPU, HandleTypes::empty());
    let [a, b] = [open, closed].map(|pool| backend.pool_alloc(pool, PAGE, STREAM).expect("room"));
    backend.stream_synchronize(STREAM).expect("a stream");
    assert_eq!(code(backend.pool_export_pointer(a)), 1, "the pool comes first");
    close(backend.pool_export(open, HandleTypes::POSIX_FILE_DESCRIPTOR).expect("made for it"));
    let blob = backend.pool_export_pointer(a).expect("exported");
    assert_eq!(backend.pool_export_pointer(a), Ok(blob));
    let managed = Managed::new(backend, PAGE);
    for other in [a.offset(512), b, managed.span.ptr, DevicePtr::NULL, WILD] {
        assert_eq!(code(backend.pool_export_pointer(other)), 1);
    }
    // SAFETY: the pool is no import, so the call has to refuse it, which is the claim.
    assert_eq!(code(unsafe { backend.pool_import_pointer(open, blob) }), 1);
    for (pool, ptr) in [(open, a), (closed, b)] {
        // SAFETY: no work uses the memory, and the claim does not use the handle again.
        unsafe {
            backend.free_async(ptr, STREAM).expect("live");
            backend.stream_synchronize(STREAM).expect("a stream");
            backend.pool_destroy(pool).expect("live");
        }
    }
    assert_eq!(code(backend.pool_export_pointer(a)), 1);
}

pub fn a_handle_that_is_none_is_not_imported(backend: &dyn Backend) {
    let fd = HandleTypes::POSIX_FILE_DESCRIPTOR;
    // SAFETY: the handles name no pool of another process, so the calls have to refuse them, which
    // is the claim.
    unsafe {
        assert_eq!(code(backend.pool_import(ShareableHandle(-1), fd)), 999);
        assert_eq!(code(backend.pool_import(ShareableHandle(1), fd)), 999, "not a pool");
        assert_eq!(code(backend.pool_import(ShareableHandle(-1), HandleTypes::empty())), 1);
        assert_eq!(code(backend.pool_import(ShareableHandle(-1), HandleTypes::WIN32)), 801);
    }
}

pub fn only_plain_device_memory_has_a_handle(backend: &dyn Backend) {
    let device = DeviceId(0);
    let plain = backend.alloc_device(device, 4 * PAGE).expect("device memory");
    let handle = backend.ipc_mem_handle(plain).expect("device memory");
    assert_eq!(backend.ipc_mem_handle(plain.offset(PAGE)), Ok(handle), "the allocation's");
    let managed = Managed::new(backend, PAGE);
    let pinned = backend.alloc_pinned(PAGE, HostAllocFlags::empty()).expect("host memory");
    for other in [managed.span.ptr, pinned, DevicePtr::NULL, WILD] {
        assert_eq!(code(backend.ipc_mem_handle(other)), 1);
    }
    // SAFETY: the handle is of this process, so it has to be refused, and so has memory that was
    // not opened, which is the claim. After that no work uses the memory that is freed.
    unsafe {
        assert_eq!(code(backend.ipc_open_mem_handle(device, handle)), 201);
        assert_eq!(code(backend.ipc_close_mem_handle(plain)), 1);
        backend.free_pinned(pinned).expect("pinned");
        backend.free(plain).expect("live");
    }
}
