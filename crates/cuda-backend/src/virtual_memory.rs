//! Virtual memory management: the calls, and what this back end mapped.
//!
//! The driver does not check handles of physical memory, so each is looked up here. Mappings are
//! remembered, because access programs ask whether a range may be touched: the driver describes one
//! mapping at a time, and a range may go over several.

use pagewise_hal::{
    AccessFlags, Code, DeviceAttribute, DeviceId, DevicePtr, DriverVersion, Error, ErrorKind,
    Granularity, Location, LocationKind, MemoryAccess, MemoryHandle, MemoryProps, Result, Span,
};

use crate::abi::{AccessDesc, MemLocation, RawAllocationProp};
use crate::backend::CudaBackend;
use crate::mappings::Mapped;
use crate::table::Table;

/// The entry points, which serve together.
#[derive(Clone, Copy)]
struct EntryPoints {
    granularity: unsafe extern "C" fn(*mut usize, *const RawAllocationProp, i32) -> i32,
    reserve: unsafe extern "C" fn(*mut u64, usize, usize, u64, u64) -> i32,
    free: unsafe extern "C" fn(u64, usize) -> i32,
    create: unsafe extern "C" fn(*mut u64, usize, *const RawAllocationProp, u64) -> i32,
    release: unsafe extern "C" fn(u64) -> i32,
    map: unsafe extern "C" fn(u64, usize, usize, u64, u64) -> i32,
    unmap: unsafe extern "C" fn(u64, usize) -> i32,
    set_access: unsafe extern "C" fn(u64, usize, *const AccessDesc, usize) -> i32,
    access: unsafe extern "C" fn(*mut u64, *const MemLocation, u64) -> i32,
}

impl EntryPoints {
    /// All of them; `None` if the library lacks one.
    fn of(table: &Table) -> Option<Self> {
        Some(Self {
            granularity: table.mem_granularity?,
            reserve: table.mem_address_reserve?,
            free: table.mem_address_free?,
            create: table.mem_create?,
            release: table.mem_release?,
            map: table.mem_map?,
            unmap: table.mem_unmap?,
            set_access: table.mem_set_access?,
            access: table.mem_get_access?,
        })
    }
}

/// `CU_MEM_LOCATION_TYPE_HOST` has memory of the host in general only from 13.0: a node is asked.
fn host_of(place: Location) -> Location {
    if place.kind == LocationKind::HOST { place } else { Location::host_numa(place.id) }
}

impl CudaBackend {
    fn virtual_memory(&self, operation: &'static str) -> Result<EntryPoints> {
        EntryPoints::of(&self.driver.table).ok_or_else(|| {
            Error::new(operation, ErrorKind::Unsupported)
                .with_detail("the driver library lacks an entry point: see `pagewise doctor`")
        })
    }

    /// Whether the library has the entry points, and every device the ability.
    pub(crate) fn has_virtual_memory(&self) -> bool {
        let ability = DeviceAttribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        EntryPoints::of(&self.driver.table).is_some()
            && (0..self.driver.devices)
                .all(|id| self.device_attribute(DeviceId(id.cast_signed()), ability) == Ok(1))
    }

    /// Refuses places that a driver of the version in use refuses, because the installed driver may
    /// be newer and take them: the host, from `host_since` on, and its nodes.
    fn check_place(
        &self,
        operation: &'static str,
        location: Location,
        host_since: DriverVersion,
    ) -> Result<()> {
        let since = match location.kind {
            LocationKind::HOST => host_since,
            LocationKind::HOST_NUMA => DriverVersion::CUDA_12_2,
            _ => return Ok(()),
        };
        if self.driver.has(since) {
            return Ok(());
        }
        Err(Error::from_code(operation, Code::INVALID_VALUE)
            .with_detail("a driver of this version does not know the place"))
    }

    /// Refuses a range that no reservation holds alone, which the driver may take.
    fn check_reserved(&self, operation: &'static str, span: Span) -> Result<()> {
        if self.memories.known().is_reserved(span) {
            return Ok(());
        }
        Err(Error::from_code(operation, Code::INVALID_VALUE)
            .with_detail("the range is not within one reservation")
            .with_span(span))
    }

    pub(crate) fn memory_granularity(&self, props: MemoryProps, which: Granularity) -> Result<u64> {
        const OPERATION: &str = "memory_granularity";
        let get = self.virtual_memory(OPERATION)?.granularity;
        let (mut bytes, raw) = (0, RawAllocationProp::from(props));
        let context = &self.home.context;
        // SAFETY: the driver reads the properties and writes one size, both locals that outlive the
        // call. Bytes of the properties without a use are zero, as the driver asks.
        context.call(OPERATION, || unsafe { get(&raw mut bytes, &raw const raw, which.0) })?;
        Ok(bytes as u64)
    }

    pub(crate) fn address_reserve(
        &self,
        bytes: u64,
        align_bytes: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        const OPERATION: &str = "address_reserve";
        let reserve = self.virtual_memory(OPERATION)?.reserve;
        let mut ptr = 0;
        // SAFETY: the driver checks sizes and hint, and writes the address to a local that outlives
        // the call.
        self.home.context.call(OPERATION, || unsafe {
            reserve(&raw mut ptr, bytes as usize, align_bytes as usize, hint.0, 0)
        })?;
        self.memories.known().reserved.insert(ptr, bytes);
        Ok(DevicePtr(ptr))
    }

    /// # Safety
    /// As [`Backend::address_free`](pagewise_hal::Backend::address_free).
    pub(crate) unsafe fn address_free(&self, span: Span) -> Result<()> {
        const OPERATION: &str = "address_free";
        let free = self.virtual_memory(OPERATION)?.free;
        let end = span.end().unwrap_or(u64::MAX);
        if self.memories.known().mapped.range(span.ptr.0..end).next().is_some() {
            return Err(Error::from_code(OPERATION, Code::INVALID_VALUE)
                .with_detail("memory is mapped in the range: unmap it first")
                .with_span(span));
        }
        // Forgotten first: once it is free, another thread may reserve the same addresses.
        let forgotten = self.memories.known().reserved.remove(&span.ptr.0);
        // SAFETY: the driver checks that the range is a reservation. The caller promised that no
        // code uses its addresses from now on, and this back end has nothing mapped in it.
        let answer =
            self.home.context.call(OPERATION, || unsafe { free(span.ptr.0, span.bytes as usize) });
        answer.map_err(|error| {
            let back = forgotten.map(|bytes| (span.ptr.0, bytes));
            self.memories.known().reserved.extend(back);
            error.with_span(span)
        })
    }

    pub(crate) fn memory_create(&self, bytes: u64, props: MemoryProps) -> Result<MemoryHandle> {
        const OPERATION: &str = "memory_create";
        let create = self.virtual_memory(OPERATION)?.create;
        if bytes == 0 {
            return Err(Error::from_code(OPERATION, Code::INVALID_VALUE)
                .with_detail("create a multiple of the granularity, not 0"));
        }
        self.check_place(OPERATION, props.location, DriverVersion::CUDA_13_0)?;
        let (mut memory, raw) = (0, RawAllocationProp::from(props));
        // SAFETY: the driver checks the size, reads the properties and writes the handle, both
        // locals that outlive the call. Bytes of the properties without a use are zero.
        self.home.context.call(OPERATION, || unsafe {
            create(&raw mut memory, bytes as usize, &raw const raw, 0)
        })?;
        self.memories.known().places.insert(memory, props.location);
        self.memories.live.add(memory);
        Ok(MemoryHandle::checked(memory))
    }

    /// Releases memory that is in the set of live ones no more.
    pub(crate) fn memory_end(&self, memory: MemoryHandle) -> Result<()> {
        const OPERATION: &str = "memory_release";
        self.memories.known().places.remove(&memory.as_raw());
        let release = self.virtual_memory(OPERATION)?.release;
        // SAFETY: the driver asks for a live handle that no call uses. It was taken from the set of
        // live ones, which succeeds once and only while no call uses it; for one that was not in
        // the set, the caller of `memory_release` promised it.
        self.home.context.call(OPERATION, || unsafe { release(memory.as_raw()) })
    }

    /// # Safety
    /// As [`Backend::memory_map`](pagewise_hal::Backend::memory_map).
    pub(crate) unsafe fn memory_map(
        &self,
        span: Span,
        offset_bytes: u64,
        memory: MemoryHandle,
    ) -> Result<()> {
        const OPERATION: &str = "memory_map";
        let map = self.virtual_memory(OPERATION)?.map;
        let _used = self.use_memory(OPERATION, memory)?;
        self.check_reserved(OPERATION, span)?;
        let (bytes, offset) = (span.bytes as usize, offset_bytes as usize);
        // SAFETY: the range is reserved, and the driver checks that it is vacant. The handle is
        // live because this call uses it. The caller promised that no code counts on having the
        // memory alone if it is mapped elsewhere.
        let answer = self
            .home
            .context
            .call(OPERATION, || unsafe { map(span.ptr.0, bytes, offset, memory.as_raw(), 0) });
        answer.map_err(|error| error.with_span(span))?;
        let mut known = self.memories.known();
        let place = known.places.get(&memory.as_raw()).copied().unwrap_or(Location::NONE);
        known.mapped.insert(span.ptr.0, Mapped { bytes: span.bytes, place });
        Ok(())
    }

    /// # Safety
    /// As [`Backend::memory_unmap`](pagewise_hal::Backend::memory_unmap).
    pub(crate) unsafe fn memory_unmap(&self, span: Span) -> Result<()> {
        const OPERATION: &str = "memory_unmap";
        let unmap = self.virtual_memory(OPERATION)?.unmap;
        self.check_reserved(OPERATION, span)?;
        // SAFETY: the driver checks that the range cuts no mapping. The caller promised that no
        // code and no work uses it.
        let answer =
            self.home.context.call(OPERATION, || unsafe { unmap(span.ptr.0, span.bytes as usize) });
        answer.map_err(|error| error.with_span(span))?;
        let end = span.end().unwrap_or(u64::MAX);
        self.memories.known().mapped.retain(|start, _| !(span.ptr.0..end).contains(start));
        Ok(())
    }

    /// # Safety
    /// As [`Backend::memory_set_access`](pagewise_hal::Backend::memory_set_access).
    pub(crate) unsafe fn memory_set_access(
        &self,
        span: Span,
        wanted: &[MemoryAccess],
    ) -> Result<()> {
        const OPERATION: &str = "memory_set_access";
        let set = self.virtual_memory(OPERATION)?.set_access;
        for one in wanted {
            self.check_place(OPERATION, one.location, DriverVersion::CUDA_12_2)?;
        }
        let raw: Vec<AccessDesc> = wanted
            .iter()
            .map(|one| AccessDesc { location: one.location.into(), flags: one.access.0 })
            .collect();
        // SAFETY: the driver reads as many descriptors as `raw` has, which outlives the call, and
        // checks range, places and flags. The caller promised that no code loses access to memory
        // that it uses.
        let answer = self.home.context.call(OPERATION, || unsafe {
            set(span.ptr.0, span.bytes as usize, raw.as_ptr(), raw.len())
        });
        answer.map_err(|error| error.with_span(span))
    }

    pub(crate) fn memory_access(&self, ptr: DevicePtr, location: Location) -> Result<AccessFlags> {
        const OPERATION: &str = "memory_access";
        let get = self.virtual_memory(OPERATION)?.access;
        self.check_place(OPERATION, location, DriverVersion::CUDA_12_2)?;
        let (mut flags, location) = (0_u64, MemLocation::from(location));
        let context = &self.home.context;
        // SAFETY: the driver reads the location and writes the flags, both locals that outlive the
        // call, and checks the address.
        context.call(OPERATION, || unsafe { get(&raw mut flags, &raw const location, ptr.0) })?;
        Ok(AccessFlags(flags as i32))
    }

    /// Whether an access program may touch a range of memory that this back end mapped: `None` if
    /// it did not map it, or not all of it. `by` is a device, or `None` for the host.
    pub(crate) fn admits_mapped(
        &self,
        span: Span,
        by: Option<Location>,
        writes: bool,
    ) -> Option<bool> {
        let mappings = self.memories.holding(span)?;
        let admits = |&(start, place): &(u64, Location)| {
            if by.is_none() && place.kind == LocationKind::DEVICE {
                return false;
            }
            let by = by.unwrap_or_else(|| host_of(place));
            match self.memory_access(DevicePtr(start), by) {
                Ok(AccessFlags::READ_WRITE) => true,
                Ok(AccessFlags::READ) => !writes,
                _ => false,
            }
        };
        Some(mappings.iter().all(admits))
    }
}
