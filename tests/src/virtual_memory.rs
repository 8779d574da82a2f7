//! Physical memory and addresses apart: refusals, access, and the memory that is left.
//! CONTRACT-120 to CONTRACT-123: the codes are those of an H200.

use pagewise::{
    AccessFlags, AllocationType, Backend, DeviceAccess, DeviceId, DevicePtr, DeviceTouch,
    DriverVersion, Granularity, HandleTypes, HostAccess, HostTouch, Location, LocationKind,
    MemoryAccess, MemoryHandle, MemoryProps, PointerAttribute, Span,
};

use crate::{GPU, MIB, NO_GPU, PAGE, STREAM, WILD, code};

const READ_WRITE: AccessFlags = AccessFlags::READ_WRITE;
const ILLEGAL_ADDRESS: i32 = 700;

fn unit(backend: &dyn Backend) -> u64 {
    backend.memory_granularity(MemoryProps::at(GPU), Granularity::MINIMUM).expect("a device")
}

fn free_bytes(backend: &dyn Backend) -> u64 {
    backend.memory_info(DeviceId(0)).expect("a device").free_bytes
}

fn reserve(backend: &dyn Backend, bytes: u64) -> Span {
    let ptr = backend.address_reserve(bytes, 0, DevicePtr::NULL).expect("addresses");
    Span::new(ptr, bytes)
}

fn create(backend: &dyn Backend, bytes: u64) -> MemoryHandle {
    backend.memory_create(bytes, MemoryProps::at(GPU)).expect("memory")
}

fn part(span: Span, offset: u64, bytes: u64) -> Span {
    Span::new(span.ptr.offset(offset), bytes)
}

fn map(backend: &dyn Backend, span: Span, memory: MemoryHandle) -> i32 {
    // SAFETY: only the claim uses the memory, from one thread, and it knows where it is mapped.
    code(unsafe { backend.memory_map(span, 0, memory) })
}

fn unmap(backend: &dyn Backend, span: Span) -> i32 {
    // SAFETY: claims wait for the work that uses the range.
    code(unsafe { backend.memory_unmap(span) })
}

fn release(backend: &dyn Backend, memory: MemoryHandle) -> i32 {
    // SAFETY: a claim that uses the handle again asks whether it is refused.
    code(unsafe { backend.memory_release(memory) })
}

fn give_back(backend: &dyn Backend, span: Span) -> i32 {
    // SAFETY: the claim does not use the addresses afterwards.
    code(unsafe { backend.address_free(span) })
}

fn admit(backend: &dyn Backend, span: Span, location: Location, access: AccessFlags) -> i32 {
    // SAFETY: no work is using the range.
    code(unsafe { backend.memory_set_access(span, &[MemoryAccess { location, access }]) })
}

fn touch(backend: &dyn Backend, span: Span, access: DeviceAccess) -> Result<u64, i32> {
    let device = DeviceId(0);
    let touch = DeviceTouch { device, span, stride_bytes: 4096, access, blocks: 1, threads: 1 };
    // SAFETY: only this claim uses the memory, from one thread.
    unsafe { backend.device_touch(touch, STREAM) }.map_err(|error| code::<()>(Err(error)))
}

/// Memory that device 0 may read and write, at addresses of its own.
struct Mapped<'a> {
    backend: &'a dyn Backend,
    span: Span,
}

impl<'a> Mapped<'a> {
    fn new(backend: &'a dyn Backend, bytes: u64) -> Self {
        let (span, memory) = (reserve(backend, bytes), create(backend, bytes));
        assert_eq!(map(backend, span, memory), 0);
        assert_eq!(release(backend, memory), 0, "the mapping keeps the memory");
        assert_eq!(admit(backend, span, GPU, READ_WRITE), 0);
        Self { backend, span }
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        let codes = [unmap(self.backend, self.span), give_back(self.backend, self.span)];
        if !std::thread::panicking() {
            assert_eq!(codes, [0, 0]);
        }
    }
}

pub fn physical_memory_counts_from_its_creation_until_no_mapping_and_no_handle_is_left(
    backend: &dyn Backend,
) {
    let bytes = 4 * unit(backend);
    let before = free_bytes(backend);
    let span = reserve(backend, bytes);
    assert_eq!(free_bytes(backend), before, "addresses take no memory");
    let memory = create(backend, bytes);
    assert_eq!(before - free_bytes(backend), bytes);
    assert_eq!(map(backend, span, memory), 0);
    assert_eq!(release(backend, memory), 0);
    assert_eq!(before - free_bytes(backend), bytes, "it is mapped");
    assert_eq!(unmap(backend, span), 0);
    assert_eq!(free_bytes(backend), before);
    let memory = create(backend, bytes);
    assert_eq!(map(backend, span, memory), 0);
    assert_eq!(unmap(backend, span), 0);
    assert_eq!(before - free_bytes(backend), bytes, "its handle is live");
    assert_eq!([release(backend, memory), release(backend, memory)], [0, 1], "once");
    assert_eq!(free_bytes(backend), before);
    assert_eq!(give_back(backend, span), 0);
}

pub fn reservations_are_whole_units_aligned_as_asked_and_freed_whole(backend: &dyn Backend) {
    let reserve_code =
        |bytes, align, hint| code(backend.address_reserve(bytes, align, DevicePtr(hint)));
    for bytes in [0, 1, PAGE, PAGE + 1, 64 * 1024, MIB, 3 * MIB] {
        assert_eq!(reserve_code(bytes, 0, 0), 1, "{bytes} bytes");
    }
    assert_eq!(reserve_code(1 << 60, 0, 0), 2, "more than there is");
    assert_eq!(reserve_code(4 * MIB, 3, 0), 1, "no power of two");
    assert_eq!(reserve_code(4 * MIB, 3 * MIB, 0), 1, "no power of two");
    assert_eq!(reserve_code(4 * MIB, 0, 77), 1, "a hint inside a page");
    assert_eq!(reserve_code(4 * MIB, 0, PAGE), 1, "a hint inside a unit");
    for align in [0, PAGE, 64 * MIB] {
        let ptr = backend.address_reserve(4 * MIB, align, DevicePtr::NULL).expect("addresses");
        assert_eq!(ptr.0 % align.max(2 * MIB), 0);
        let span = Span::new(ptr, 4 * MIB);
        for other in [part(span, 0, 2 * MIB), part(span, 2 * MIB, 2 * MIB), part(span, 0, 8 * MIB)]
        {
            assert_eq!(give_back(backend, other), 1, "{other} is not what was reserved");
        }
        assert_eq!([give_back(backend, span), give_back(backend, span)], [0, 1]);
    }
}

pub fn a_free_hint_is_where_addresses_are_reserved(backend: &dyn Backend) {
    let first = reserve(backend, 8 * MIB);
    assert_eq!(give_back(backend, first), 0);
    let hint = first.ptr.offset(4 * MIB);
    assert_eq!(backend.address_reserve(2 * MIB, 0, hint), Ok(hint));
    let other = backend.address_reserve(2 * MIB, 0, hint).expect("elsewhere");
    assert_ne!(other, hint, "it is taken");
    for ptr in [hint, other] {
        assert_eq!(give_back(backend, Span::new(ptr, 2 * MIB)), 0);
    }
}

pub fn physical_memory_is_pinned_of_whole_units_and_of_a_place_that_has_some(
    backend: &dyn Backend,
) {
    let unit = unit(backend);
    let create = |bytes, props| match backend.memory_create(bytes, props) {
        Ok(memory) => release(backend, memory),
        Err(error) => code::<()>(Err(error)),
    };
    let pinned = MemoryProps::at(GPU);
    assert_eq!(create(unit, pinned), 0);
    assert_eq!(create(0, pinned), 1);
    assert_eq!(create(unit + PAGE, pinned), 1);
    assert_eq!(create(unit << 30, pinned), 2, "more than any device has");
    let nowhere = MemoryProps { location: NO_GPU, ..pinned };
    assert_eq!([create(unit, nowhere), create(unit + PAGE, nowhere)], [101, 1], "sizes first");
    let at = |kind| MemoryProps::at(Location { kind, id: 0 });
    for kind in [0, 4, 77] {
        assert_eq!(create(unit, at(LocationKind(kind))), 1, "location type {kind}");
    }
    let version = backend.capabilities().driver_version;
    let refused = |since| i32::from(version < since);
    assert_eq!(create(unit, at(LocationKind::HOST_NUMA)), refused(DriverVersion::CUDA_12_2));
    assert_eq!(create(unit, at(LocationKind::HOST)), refused(DriverVersion::CUDA_13_0));
    let node = at(LocationKind::HOST_NUMA);
    for (props, no_nodes) in [(pinned, 0), (node, refused(DriverVersion::CUDA_12_2))] {
        let exported = |handle_types| create(unit, MemoryProps { handle_types, ..props });
        assert_eq!(exported(HandleTypes::POSIX_FILE_DESCRIPTOR), no_nodes);
    }
    for handle_types in [HandleTypes::WIN32, HandleTypes::WIN32_KMT] {
        assert_eq!(create(unit, MemoryProps { handle_types, ..pinned }), 1, "of Windows");
    }
    let handle_types = HandleTypes::POSIX_FILE_DESCRIPTOR;
    assert_eq!(create(unit, MemoryProps { handle_types, ..at(LocationKind::HOST) }), 1);
    for allocation_type in [AllocationType::MANAGED, AllocationType(0), AllocationType(77)] {
        assert_eq!(create(unit, MemoryProps { allocation_type, ..pinned }), 1);
    }
}

pub fn the_granularity_is_that_of_any_properties(backend: &dyn Backend) {
    let unit = unit(backend);
    let allocation_type = AllocationType(77);
    let wild = MemoryProps { allocation_type, ..MemoryProps::at(NO_GPU) };
    for props in [MemoryProps::at(GPU), MemoryProps::at(Location::NONE), wild] {
        for which in [Granularity::MINIMUM, Granularity::RECOMMENDED] {
            assert_eq!(backend.memory_granularity(props, which), Ok(unit), "{props:?}");
        }
        for which in [-1, 2, 7] {
            assert_eq!(code(backend.memory_granularity(props, Granularity(which))), 1);
        }
    }
}

pub fn memory_is_mapped_whole_where_a_reservation_is_vacant(backend: &dyn Backend) {
    let unit = unit(backend);
    let (span, memory) = (reserve(backend, 4 * unit), create(backend, 2 * unit));
    for (units, expected) in [(0, 1), (1, 801), (3, 801)] {
        assert_eq!(map(backend, part(span, 0, units * unit), memory), expected, "{units} units");
    }
    for units in [1, 2] {
        // SAFETY: the call is refused, and maps nothing.
        let shifted = unsafe { backend.memory_map(part(span, 0, units * unit), unit, memory) };
        assert_eq!(code(shifted), 801, "from an offset");
    }
    assert_eq!(map(backend, part(span, PAGE, 2 * unit), memory), 1, "at no unit");
    assert_eq!(map(backend, part(span, 3 * unit, 2 * unit), memory), 1, "past the end");
    assert_eq!(map(backend, Span::new(WILD, 2 * unit), memory), 1, "not reserved");
    assert_eq!(map(backend, part(span, 0, 2 * unit), MemoryHandle::NULL), 1);
    assert_eq!(map(backend, part(span, unit, 2 * unit), memory), 0);
    for offset in [0, unit, 2 * unit] {
        assert_eq!(map(backend, part(span, offset, 2 * unit), memory), 1, "there is some already");
    }
    assert_eq!(give_back(backend, span), 1, "memory is mapped in it");
    assert_eq!([release(backend, memory), unmap(backend, span), give_back(backend, span)], [0; 3]);
}

pub fn a_range_is_unmapped_unless_it_cuts_a_mapping(backend: &dyn Backend) {
    let unit = unit(backend);
    let (span, memory) = (reserve(backend, 4 * unit), create(backend, 2 * unit));
    let middle = part(span, unit, 2 * unit);
    for range in [middle, span] {
        assert_eq!(map(backend, middle, memory), 0);
        for cut in [part(middle, 0, unit), part(middle, unit, unit), part(span, 0, 2 * unit)] {
            assert_eq!(unmap(backend, cut), 1, "{cut} has a half of {middle}");
        }
        assert_eq!(unmap(backend, part(middle, 0, 0)), 1, "nothing");
        assert_eq!(unmap(backend, part(span, 0, unit)), 0, "a gap");
        assert_eq!(admit(backend, middle, GPU, READ_WRITE), 0, "the memory is still there");
        assert_eq!([(); 2].map(|()| unmap(backend, range)), [0, 0]);
        assert_eq!(code(backend.memory_access(middle.ptr, GPU)), 1, "nothing is mapped");
    }
    assert_eq!(unmap(backend, Span::new(WILD, unit)), 1, "not reserved");
    assert_eq!([release(backend, memory), give_back(backend, span)], [0, 0]);
}

pub fn mapped_memory_is_accessed_by_those_that_were_given_access(backend: &dyn Backend) {
    let unit = unit(backend);
    let (span, memory) = (reserve(backend, unit), create(backend, unit));
    assert_eq!(map(backend, span, memory), 0);
    let access = |location| backend.memory_access(span.ptr, location);
    assert_eq!(access(GPU), Ok(AccessFlags::NONE), "a new mapping has none");
    assert_eq!(touch(backend, span, DeviceAccess::Read), Err(ILLEGAL_ADDRESS));
    let current = Location { kind: LocationKind(4), id: 0 };
    for nowhere in [NO_GPU, Location::NONE, current] {
        assert_eq!(admit(backend, span, nowhere, READ_WRITE), 1, "{nowhere:?}");
    }
    assert_eq!(admit(backend, span, GPU, AccessFlags(2)), 1);
    let knows_host = backend.capabilities().driver_version >= DriverVersion::CUDA_12_2;
    let of_a_device = if knows_host { 801 } else { 1 };
    for host in [Location::host_numa(0), Location::HOST] {
        assert_eq!(admit(backend, span, host, READ_WRITE), of_a_device);
    }
    assert_eq!(admit(backend, part(span, 0, PAGE), GPU, READ_WRITE), 1, "a part");
    assert_eq!(admit(backend, part(span, 0, 0), GPU, READ_WRITE), 1, "nothing");
    // SAFETY: the call changes nothing, because it names no place.
    assert_eq!(code(unsafe { backend.memory_set_access(span, &[]) }), 1);
    assert_eq!(access(GPU), Ok(AccessFlags::NONE), "refused calls give none");
    assert_eq!(admit(backend, span, GPU, READ_WRITE), 0);
    assert_eq!(access(GPU), Ok(READ_WRITE));
    assert_eq!(touch(backend, span, DeviceAccess::Write(3)), Ok(0));
    assert_eq!(touch(backend, span, DeviceAccess::Read), Ok(3 * unit / 4096));
    let host = HostTouch { span, stride_bytes: 1, access: HostAccess::Read };
    // SAFETY: the host may not access the memory, which the call has to notice.
    assert_eq!(code(unsafe { backend.host_touch(host) }), ILLEGAL_ADDRESS);
    assert_eq!([access(NO_GPU), access(Location::NONE)].map(code), [101, 101]);
    assert_eq!(code(backend.memory_access(WILD, GPU)), 1);
    assert_eq!(unmap(backend, span), 0);
    assert_eq!(code(access(GPU)), 1, "nothing is mapped");
    assert_eq!(map(backend, span, memory), 0);
    assert_eq!(access(GPU), Ok(AccessFlags::NONE), "it is not remembered");
    assert_eq!(unmap(backend, span), 0);
    assert_eq!([release(backend, memory), give_back(backend, span)], [0, 0]);
}

pub fn mappings_side_by_side_are_one_range(backend: &dyn Backend) {
    let unit = unit(backend);
    let span = reserve(backend, 2 * unit);
    for offset in [0, unit] {
        let memory = create(backend, unit);
        assert_eq!(map(backend, part(span, offset, unit), memory), 0);
        assert_eq!(release(backend, memory), 0);
    }
    assert_eq!(admit(backend, span, GPU, READ_WRITE), 0, "both at once");
    assert_eq!(touch(backend, span, DeviceAccess::Write(1)), Ok(0));
    // SAFETY: only this claim uses the memory.
    unsafe { backend.memset(part(span, unit - PAGE, 2 * PAGE), 5, STREAM) }.expect("live");
    backend.stream_synchronize(STREAM).expect("a stream");
    let around = part(span, unit - 2 * PAGE, 4 * PAGE);
    assert_eq!(touch(backend, around, DeviceAccess::Read), Ok(2 * 5 + 2));
    assert_eq!(unmap(backend, span), 0, "both at once");
    assert_eq!(give_back(backend, span), 0);
}

pub fn memory_shows_the_same_bytes_wherever_it_is_mapped(backend: &dyn Backend) {
    let unit = unit(backend);
    let (one, other, memory) =
        (reserve(backend, unit), reserve(backend, unit), create(backend, unit));
    assert_eq!(map(backend, one, memory), 0);
    assert_eq!(admit(backend, one, GPU, READ_WRITE), 0);
    assert_eq!(touch(backend, one, DeviceAccess::Write(2)), Ok(0));
    assert_eq!(map(backend, other, memory), 0);
    assert_eq!(admit(backend, other, GPU, READ_WRITE), 0);
    let places = unit / 4096;
    assert_eq!(touch(backend, other, DeviceAccess::Read), Ok(2 * places));
    assert_eq!(touch(backend, part(one, 0, PAGE), DeviceAccess::Write(9)), Ok(0));
    assert_eq!(touch(backend, other, DeviceAccess::Read), Ok(2 * places + 7));
    assert_eq!(unmap(backend, other), 0, "the bytes stay with the memory");
    assert_eq!(touch(backend, one, DeviceAccess::Read), Ok(2 * places + 7));
    assert_eq!(unmap(backend, one), 0);
    assert_eq!(map(backend, other, memory), 0);
    assert_eq!(admit(backend, other, GPU, READ_WRITE), 0);
    assert_eq!(touch(backend, other, DeviceAccess::Read), Ok(2 * places + 7), "even unmapped");
    assert_eq!(unmap(backend, other), 0);
    let codes = [give_back(backend, one), give_back(backend, other), release(backend, memory)];
    assert_eq!(codes, [0; 3]);
}

pub fn mapped_memory_is_device_memory_that_no_other_call_frees(backend: &dyn Backend) {
    let unit = unit(backend);
    let mapped = Mapped::new(backend, 2 * unit);
    let ask = |attribute| backend.pointer_attribute(mapped.span.ptr.offset(PAGE), attribute);
    assert_eq!(ask(PointerAttribute::IS_MANAGED), Ok(0));
    assert_eq!(ask(PointerAttribute::MEMORY_TYPE), Ok(2));
    assert_eq!(ask(PointerAttribute::DEVICE_ORDINAL), Ok(0));
    assert_ne!(code(backend.prefetch_ordinal(mapped.span, 0, STREAM)), 0);
    // SAFETY: the frees have to refuse the memory, which is the claim.
    let frees = unsafe {
        let ptr = mapped.span.ptr;
        [backend.free(ptr), backend.free_pinned(ptr), backend.free_async(ptr, STREAM)]
    };
    assert_eq!(frees.map(code), [1; 3]);
    assert_eq!(touch(backend, mapped.span, DeviceAccess::Write(1)), Ok(0), "it is still there");
}

pub fn attributes_of_mapped_memory_describe_its_reservation(backend: &dyn Backend) {
    let unit = unit(backend);
    let (span, memory) = (reserve(backend, 4 * unit), create(backend, unit));
    let ptr = span.ptr.offset(unit + PAGE);
    let ask = |attribute| backend.pointer_attribute(ptr, attribute).map_err(|e| code::<()>(Err(e)));
    let reserved = [PointerAttribute::RANGE_START_ADDR, PointerAttribute::RANGE_SIZE];
    assert_eq!(reserved.map(ask), [Err(1); 2], "nothing is mapped");
    assert_eq!(map(backend, part(span, unit, unit), memory), 0);
    assert_eq!(release(backend, memory), 0);
    for (access, device_ptr) in
        [(AccessFlags::NONE, Err(1)), (READ_WRITE, Ok(ptr.0)), (AccessFlags::NONE, Err(1))]
    {
        assert_eq!(admit(backend, part(span, unit, unit), GPU, access), 0);
        assert_eq!(reserved.map(ask), [Ok(span.ptr.0), Ok(span.bytes)]);
        assert_eq!(ask(PointerAttribute::DEVICE_POINTER), device_ptr, "with {access:?}");
        assert_eq!(ask(PointerAttribute::HOST_POINTER), Err(1));
        assert_eq!(ask(PointerAttribute::MAPPED), Ok(1));
        assert_eq!(ask(PointerAttribute::ALLOWED_HANDLE_TYPES), Ok(0));
    }
    assert_eq!([unmap(backend, span), give_back(backend, span)], [0, 0]);
}

pub fn fills_and_copies_of_memory_without_access_are_refused_and_others_go_on(
    backend: &dyn Backend,
) {
    let unit = unit(backend);
    let span = reserve(backend, 2 * unit);
    for offset in [0, unit] {
        let memory = create(backend, unit);
        assert_eq!(map(backend, part(span, offset, unit), memory), 0);
        assert_eq!(release(backend, memory), 0);
    }
    let (open, closed) = (part(span, 0, unit), part(span, unit, unit));
    assert_eq!(admit(backend, open, GPU, READ_WRITE), 0);
    // SAFETY: only this claim uses the memory, from one thread.
    let fill = |span| code(unsafe { backend.memset(span, 7, STREAM) });
    // SAFETY: as for the fill, only this claim uses the memory, and the ranges are apart.
    let copy =
        |to: Span, from: Span| code(unsafe { backend.memcpy(to.ptr, from.ptr, PAGE, STREAM) });
    assert_eq!(fill(closed), 1);
    assert_eq!(fill(part(span, unit - PAGE, 2 * PAGE)), 1, "half of it is closed");
    assert_eq!([copy(open, closed), copy(closed, open)], [1, 1]);
    assert_eq!(fill(open), 0);
    assert_eq!(admit(backend, span, GPU, AccessFlags::READ), 0);
    assert_eq!(fill(open), 1, "it is only read");
    backend.stream_synchronize(STREAM).expect("refused calls do no harm");
    assert_eq!(touch(backend, part(open, 0, PAGE), DeviceAccess::Read), Ok(7));
    assert_eq!([unmap(backend, span), give_back(backend, span)], [0, 0]);
}
