//! Calls of virtual memory management: `cuMemAddressReserve`, `cuMemCreate`, `cuMemMap` and those
//! beside them.
//!
//! The answers are those of an H200, as far as it was probed: CONTRACT-120 to CONTRACT-123 say
//! which are guesses.

use pagewise_hal::{
    AccessFlags, AllocationType, BLOCK_BYTES, DeviceId, DevicePtr, DriverVersion, Granularity,
    HandleTypes, Location, LocationKind, MemoryAccess, MemoryHandle, MemoryProps, Processor, Span,
};

use crate::arena::NO_ADDRESSES;
use crate::link::PeerLink;
use crate::locate::Unknown;
use crate::refusal::{Checked, bad_device, invalid, not_permitted, out_of_memory, unsupported};
use crate::sim::Sim;
use crate::space::{Allocation, MemoryKind};

const NOT_WHOLE: &str = "the range is not made of whole mappings without a gap";
const NO_PLACE: &str = "the place is no device that exists, and not on the host";
pub(crate) const NO_MEMORY: &str =
    "no live physical memory: null, released, or of another back end";

impl Sim {
    pub(crate) fn check_manages_virtual_memory(&self) -> Checked<()> {
        if self.config.gpu.attributes.virtual_memory_management_supported {
            return Ok(());
        }
        unsupported("the device has no virtual memory management")
    }

    /// The processor that has memory of these properties.
    fn home_of(&self, props: MemoryProps) -> Checked<Processor> {
        let MemoryProps { allocation_type, location, handle_types } = props;
        if allocation_type != AllocationType::PINNED {
            return invalid("the type of memory is PINNED");
        }
        match location.kind {
            LocationKind::DEVICE => {}
            LocationKind::HOST_NUMA if self.has(DriverVersion::CUDA_12_2) => {}
            LocationKind::HOST if self.has(DriverVersion::CUDA_13_0) => {}
            _ => return invalid("a driver of this version has no physical memory there"),
        }
        let home = match self.topology.processor(location) {
            Ok(home) => home,
            Err(Unknown::Device) => return bad_device("the device does not exist"),
            Err(_) => return invalid("the NUMA node does not exist"),
        };
        if location.kind == LocationKind::HOST && !handle_types.is_empty() {
            return invalid("memory of the host as a whole is not exported: name a NUMA node");
        }
        self.check_exports(handle_types)?;
        Ok(home)
    }

    /// Whether memory can be made for export as these types. The driver ignores bits without a
    /// meaning (CONTRACT-120).
    fn check_exports(&self, handle_types: HandleTypes) -> Checked<()> {
        if handle_types.intersects(HandleTypes::WIN32 | HandleTypes::WIN32_KMT) {
            return invalid("handles of Windows exist on Windows only");
        }
        let supported = self.config.gpu.attributes.mempool_supported_handle_types;
        let supported = HandleTypes::from_bits_retain(supported.cast_unsigned());
        let known = HandleTypes::POSIX_FILE_DESCRIPTOR | HandleTypes::FABRIC;
        if !supported.contains(handle_types & known) {
            return unsupported("the device does not have the handle type");
        }
        if handle_types.contains(HandleTypes::FABRIC) {
            return not_permitted("a fabric handle needs an IMEX channel, which the machine lacks");
        }
        Ok(())
    }

    /// `cuMemGetAllocationGranularity`: CONTRACT-120.
    pub(crate) fn memory_granularity(&self, which: Granularity) -> Checked<u64> {
        self.check_manages_virtual_memory()?;
        match which {
            Granularity::MINIMUM | Granularity::RECOMMENDED => Ok(BLOCK_BYTES),
            _ => invalid("the granularity is minimum (0) or recommended (1)"),
        }
    }

    /// `cuMemAddressReserve`: CONTRACT-121.
    pub(crate) fn address_reserve(
        &mut self,
        bytes: u64,
        align_bytes: u64,
        hint: DevicePtr,
    ) -> Checked<DevicePtr> {
        self.check_manages_virtual_memory()?;
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
            return invalid("reserve a multiple of 2 MiB, not 0");
        }
        if align_bytes != 0 && !align_bytes.is_power_of_two() {
            return invalid("the alignment is a power of two, or 0");
        }
        if !hint.0.is_multiple_of(BLOCK_BYTES) {
            return invalid("the hint is a multiple of 2 MiB");
        }
        let arena = &mut self.arena;
        match self.mappings.reserve(arena, bytes, align_bytes, hint.0) {
            Some(start) => Ok(DevicePtr(start)),
            None => out_of_memory(NO_ADDRESSES),
        }
    }

    /// `cuMemAddressFree`: CONTRACT-121.
    pub(crate) fn address_free(&mut self, span: Span) -> Checked<()> {
        self.check_manages_virtual_memory()?;
        if self.mappings.unreserve(span) {
            return Ok(());
        }
        invalid("give one whole reservation, with nothing mapped in it")
    }

    /// `cuMemCreate`: CONTRACT-120.
    pub(crate) fn memory_create(
        &mut self,
        bytes: u64,
        props: MemoryProps,
    ) -> Checked<MemoryHandle> {
        self.check_manages_virtual_memory()?;
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
            return invalid("create a multiple of the granularity, 2 MiB, not 0");
        }
        let home = self.home_of(props)?;
        if !home.is_host() && bytes > self.plain_room(DeviceId(props.location.id)) {
            return out_of_memory("the device's memory is used up");
        }
        let handle = self.mappings.create(bytes, props, home);
        self.make_way();
        Ok(MemoryHandle::checked(handle))
    }

    /// `cuMemRelease`: CONTRACT-122.
    pub(crate) fn memory_release(&mut self, memory: MemoryHandle) -> Checked<()> {
        self.check_manages_virtual_memory()?;
        if self.mappings.held(memory.as_raw()).is_none() {
            return invalid(NO_MEMORY);
        }
        self.mappings.release(memory.as_raw());
        self.make_way();
        Ok(())
    }

    /// `cuMemRetainAllocationHandle`: CONTRACT-122.
    pub(crate) fn memory_retain(&mut self, ptr: DevicePtr) -> Checked<MemoryHandle> {
        self.check_manages_virtual_memory()?;
        let Some(memory) = self.mappings.at(ptr.0).map(|mapping| mapping.memory) else {
            return invalid("nothing is mapped at the address");
        };
        self.mappings.retain(memory);
        Ok(MemoryHandle::checked(memory))
    }

    /// `cuMemGetAllocationPropertiesFromHandle`
    pub(crate) fn memory_props(&self, memory: MemoryHandle) -> Checked<MemoryProps> {
        self.check_manages_virtual_memory()?;
        match self.mappings.held(memory.as_raw()) {
            Some(physical) => Ok(physical.props),
            None => invalid(NO_MEMORY),
        }
    }

    /// `cuMemMap`: CONTRACT-122.
    pub(crate) fn memory_map(
        &mut self,
        span: Span,
        offset_bytes: u64,
        memory: MemoryHandle,
    ) -> Checked<()> {
        self.check_manages_virtual_memory()?;
        let Some(physical) = self.mappings.held(memory.as_raw()) else {
            return invalid(NO_MEMORY);
        };
        if span.bytes == 0 {
            return invalid("map all of the memory, not 0 bytes");
        }
        if offset_bytes != 0 || span.bytes != physical.bytes {
            return unsupported("memory is mapped as a whole: offset 0, and its own length");
        }
        if !span.ptr.0.is_multiple_of(BLOCK_BYTES) {
            return invalid("map at a multiple of the granularity, 2 MiB");
        }
        if !self.mappings.is_vacant(span) {
            return invalid("the range is not in one reservation, or has memory in it already");
        }
        if self.mappings.map(&mut self.arena, span.ptr.0, memory.as_raw()).is_err() {
            return out_of_memory("the process has no room for another mapping");
        }
        self.space.enter(span.ptr.0, span.bytes, MemoryKind::Mapped(memory));
        Ok(())
    }

    /// `cuMemUnmap`: CONTRACT-122.
    pub(crate) fn memory_unmap(&mut self, span: Span) -> Checked<()> {
        self.check_manages_virtual_memory()?;
        let Some(starts) = self.mappings.uncut(span) else {
            return invalid("the range is not within one reservation, or cuts a mapping");
        };
        for start in starts {
            if let Some(&allocation) = self.space.starting(DevicePtr(start)) {
                self.space.remove(&allocation);
            }
            self.mappings.unmap(&mut self.arena, start);
        }
        self.make_way();
        Ok(())
    }

    /// The processor at a place that may have access to mapped memory; `None` for a place that
    /// is neither a device nor on the host.
    fn accessor(&self, location: Location) -> Checked<Option<Processor>> {
        Ok(match location.kind {
            LocationKind::DEVICE => self.topology.processor(location).ok(),
            // The driver ignores the number of the node.
            LocationKind::HOST | LocationKind::HOST_NUMA => {
                if !self.has(DriverVersion::CUDA_12_2) {
                    return invalid("a driver of this version does not know the place");
                }
                Some(Processor::HOST)
            }
            _ => None,
        })
    }

    /// `cuMemSetAccess`: CONTRACT-123.
    pub(crate) fn memory_set_access(&mut self, span: Span, wanted: &[MemoryAccess]) -> Checked<()> {
        self.check_manages_virtual_memory()?;
        let Some(starts) = self.mappings.whole(span) else { return invalid(NOT_WHOLE) };
        if wanted.is_empty() {
            return invalid("name at least one place");
        }
        let on_host = |&start: &u64| {
            let memory = self.mappings.at(start).map(|mapping| mapping.memory);
            memory.is_some_and(|handle| self.mappings.home_of(handle).is_host())
        };
        let all_on_host = starts.iter().all(on_host);
        let mut changes = Vec::with_capacity(wanted.len());
        for &MemoryAccess { location, access } in wanted {
            let Some(by) = self.accessor(location)? else { return invalid(NO_PLACE) };
            if by.is_host() && !all_on_host {
                return unsupported("the host has no access to memory of a device");
            }
            if !by.is_host() && !starts.iter().all(|&start| self.is_within_reach(by, start)) {
                return bad_device("the device is no peer of the one that has the memory");
            }
            if ![AccessFlags::NONE, AccessFlags::READ, AccessFlags::READ_WRITE].contains(&access) {
                return invalid("access is none (0), read (1), or read and write (3)");
            }
            changes.push((by, access));
        }
        for (by, access) in changes {
            starts.iter().for_each(|&start| self.mappings.set_access(start, by, access));
        }
        self.hide_from_host(span);
        Ok(())
    }

    /// Whether a device can reach the memory of the mapping at an address: its own, that of the
    /// host, or that of a peer (CONTRACT-123).
    fn is_within_reach(&self, by: Processor, start: u64) -> bool {
        let Some(mapping) = self.mappings.at(start) else { return false };
        let home = self.mappings.home_of(mapping.memory);
        home == by || home.is_host() || self.config.gpu.peer_link != PeerLink::None
    }

    /// `cuMemGetAccess`: CONTRACT-123.
    pub(crate) fn memory_access(&self, ptr: DevicePtr, location: Location) -> Checked<AccessFlags> {
        self.check_manages_virtual_memory()?;
        let Some(by) = self.accessor(location)? else { return bad_device(NO_PLACE) };
        match self.mappings.at(ptr.0) {
            Some(mapping) => Ok(mapping.access(by)),
            None => invalid("nothing is mapped at the address"),
        }
    }

    /// Whether a processor may access a range of an allocation, or of mappings side by side. Of
    /// mapped memory it needs access to each mapping.
    pub(crate) fn reaches_all(
        &self,
        by: Processor,
        allocation: &Allocation,
        span: Span,
        writes: bool,
    ) -> bool {
        match allocation.kind {
            MemoryKind::Mapped(_) => self.mappings.admits(by, span, writes),
            _ => self.reaches(by, allocation),
        }
    }
}
