//! Physical memory mapped at reserved addresses, which can grow without a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::{
    AccessFlags, DevicePtr, DriverVersion, Granularity, HandleTypes, MemoryAccess, MemoryProps,
    Result,
};

use super::allocation::Allocation;
use super::memory_resource::{MemoryKind, MemoryResource, check_request};
use super::virtual_parts::{Growth, Parts, Terms};
use crate::refuse::{invalid, unsupported};
use crate::{Device, Machine, Place, Stream};

const MAKE: &str = "virtual memory";
const GROW: &str = "grow";

/// Options of a [`VirtualMemoryResource`].
///
/// ```
/// use pagewise::Granularity;
/// use pagewise::resource::VirtualOptions;
///
/// let options = VirtualOptions { granularity: Granularity::MINIMUM, ..Default::default() };
/// assert!(options.peers.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualOptions {
    /// The unit that sizes are rounded up to; [`Granularity::RECOMMENDED`] by default.
    pub granularity: Granularity,
    /// The types of handle that the memory may be exported as; none by default, and none for the
    /// host as a whole.
    pub handle_types: HandleTypes,
    /// The alignment of addresses: a power of two, or 0 for the driver's choice.
    pub align_bytes: u64,
    /// Where addresses should begin, if they are free there: a multiple of 2 MiB; null for anywhere.
    pub hint: DevicePtr,
    /// Other devices that may use the memory, each to read it ([`AccessFlags::READ`]) or to read
    /// and write it ([`AccessFlags::READ_WRITE`]).
    pub peers: Vec<(Device, AccessFlags)>,
}

impl Default for VirtualOptions {
    fn default() -> Self {
        Self {
            granularity: Granularity::RECOMMENDED,
            handle_types: HandleTypes::empty(),
            align_bytes: 0,
            hint: DevicePtr::NULL,
            peers: Vec::new(),
        }
    }
}

/// Refuses memory of the host as a whole where drivers refuse it: they do so only when memory is
/// created.
fn check_host(machine: &Machine, place: Place, handle_types: HandleTypes) -> Result<()> {
    if place != Place::HOST {
        return Ok(());
    }
    if machine.capabilities().driver_version < DriverVersion::CUDA_13_0 {
        let why = "memory of the host as a whole needs CUDA 13.0: name a NUMA node";
        return Err(unsupported(MAKE, why));
    }
    if !handle_types.is_empty() {
        let why = "memory of the host as a whole is not exported: name a NUMA node";
        return Err(invalid(MAKE, why));
    }
    Ok(())
}

/// The access of each peer, or the reason why one cannot have it.
fn accesses(
    machine: &Machine,
    place: Place,
    peers: &[(Device, AccessFlags)],
) -> Result<Vec<MemoryAccess>> {
    let mut named = BTreeSet::new();
    let mut wanted = Vec::with_capacity(peers.len());
    for &(device, access) in peers {
        machine.check_device(MAKE, device)?;
        if Place::from(device) == place || !named.insert(device) {
            let why = format!("{device} is named twice, or is the place itself");
            return Err(invalid(MAKE, why));
        }
        if ![AccessFlags::READ, AccessFlags::READ_WRITE].contains(&access) {
            return Err(invalid(MAKE, "a peer may READ, or READ_WRITE"));
        }
        if let Place::Device(home) = place
            && !machine.backend().can_access_peer(device.id(), home.id())?
        {
            return Err(invalid(MAKE, format!("{device} cannot access memory of {home}")));
        }
        wanted.push(MemoryAccess { location: Place::from(device).into(), access });
    }
    Ok(wanted)
}

/// Gives physical memory of a device or of the host, mapped at addresses that are reserved for it
/// (`cuMemCreate`, `cuMemAddressReserve`, `cuMemMap`). An allocation can [grow](Self::grow) without
/// a copy.
///
/// | place | needs | may use the memory |
/// | --- | --- | --- |
/// | a device | CUDA 12.0 | the device, and the [peers](VirtualOptions::peers) |
/// | a NUMA node of the host | CUDA 12.2 | the host, and the peers |
/// | the host as a whole | CUDA 13.0 | the host, and the peers |
///
/// Memory is given at once, not in stream order; giving it back waits for the stream first. An
/// allocation takes its size, rounded up to [`granularity_bytes`](Self::granularity_bytes), of
/// memory. The memory stays where it is. Pagewise exports none of it to other processes.
///
/// ```
/// use std::sync::Arc;
/// use pagewise::resource::{Allocation, Growth, VirtualMemoryResource, VirtualOptions};
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let options = VirtualOptions::default();
/// let resource = Arc::new(VirtualMemoryResource::new(&machine, Device::FIRST, options)?);
/// let mut bytes = Allocation::new(resource.clone(), 3 << 20, &stream)?;
/// assert_eq!(resource.capacity_bytes(&bytes), Some(4 << 20));
/// let before = bytes.device_ptr();
/// assert_eq!(resource.grow(&mut bytes, 5 << 20)?, Growth::InPlace);
/// assert_eq!((bytes.device_ptr(), bytes.span().bytes), (before, 5 << 20));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct VirtualMemoryResource {
    machine: Machine,
    place: Place,
    terms: Terms,
    granularity_bytes: u64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Of live allocations, by first address.
    live: BTreeMap<DevicePtr, Parts>,
    /// Parts that the back end failed to take back.
    left: Vec<Parts>,
}

impl VirtualMemoryResource {
    /// A resource of memory of a place. It takes no memory until it gives some.
    ///
    /// # Errors
    /// Without a CUDA code: `InvalidDevice` for a device or peer that does not exist; `Unsupported`
    /// without [`virtual_memory`](crate::Capabilities::virtual_memory), for a NUMA node before CUDA
    /// 12.2, or for the host as a whole before CUDA 13.0; `InvalidValue` for an alignment that is no
    /// power of two, handle types of memory of the host as a whole, or a peer that is named twice,
    /// is the place itself, is given no access, or cannot access the device. `InvalidValue` (1) for
    /// an unknown granularity. Handle types that the machine does not have are refused with the
    /// first allocation.
    ///
    /// ```
    /// use pagewise::{Device, ErrorKind, Machine};
    /// use pagewise::resource::{VirtualMemoryResource, VirtualOptions};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let options = VirtualOptions { align_bytes: 3, ..Default::default() };
    /// let error = VirtualMemoryResource::new(&machine, Device::FIRST, options).unwrap_err();
    /// assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn new(
        machine: impl Into<Machine>,
        place: impl Into<Place>,
        options: VirtualOptions,
    ) -> Result<Self> {
        let (machine, place) = (machine.into(), place.into());
        let VirtualOptions { granularity, handle_types, align_bytes, hint, peers } = options;
        if !machine.capabilities().virtual_memory {
            let why = "the driver or a device has no virtual memory management: use a \
                       `DeviceMemoryResource`";
            return Err(unsupported(MAKE, why));
        }
        let location = machine.check_place(MAKE, place)?;
        if align_bytes != 0 && !align_bytes.is_power_of_two() {
            return Err(invalid(MAKE, "the alignment is a power of two, or 0"));
        }
        check_host(&machine, place, handle_types)?;
        let own = MemoryAccess { location, access: AccessFlags::READ_WRITE };
        let mut access = vec![own];
        access.extend(accesses(&machine, place, &peers)?);
        let props = MemoryProps { handle_types, ..MemoryProps::at(location) };
        let granularity_bytes = machine.backend().memory_granularity(props, granularity)?;
        if granularity_bytes == 0 {
            return Err(unsupported(MAKE, "the driver names no granularity"));
        }
        let terms = Terms { props, access, align_bytes, hint };
        Ok(Self { machine, place, terms, granularity_bytes, held: Mutex::default() })
    }

    /// The place of the memory.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// The unit that sizes are rounded up to, in bytes.
    ///
    /// ```
    /// # use pagewise::{Device, Machine, resource::{VirtualMemoryResource, VirtualOptions}};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource =
    ///     VirtualMemoryResource::new(&machine, Device::FIRST, VirtualOptions::default())?;
    /// assert_eq!(resource.granularity_bytes(), 2 << 20);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn granularity_bytes(&self) -> u64 {
        self.granularity_bytes
    }

    /// The memory behind an allocation of this resource, in bytes: its size rounded up. `None` for
    /// other allocations. See the [type](Self) for an example.
    #[must_use]
    pub fn capacity_bytes(&self, allocation: &Allocation) -> Option<u64> {
        self.held().live.get(&allocation.device_ptr()).map(Parts::bytes)
    }

    /// Grows an allocation of this resource to `bytes` bytes, and keeps its contents.
    ///
    /// In place if the addresses after it are free: then nothing waits, and work that uses the
    /// allocation may go on. Otherwise old and new memory are mapped at a new address, after the
    /// allocation's stream was waited for, and the old addresses are given back
    /// ([`Growth::Moved`]): take the address anew. No byte is copied either way. A size that is no
    /// larger than before changes nothing: allocations do not shrink.
    ///
    /// After an error the allocation is as before: size, address, contents and access. If old
    /// addresses cannot be given back, the allocation has grown all the same. The failure counts in
    /// [`Machine::failures_on_drop`], and they go back with the allocation.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for an allocation that is not directly of this resource, or a
    /// size that no address space holds; `OutOfMemory` (2); errors of the back end.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use pagewise::resource::{Allocation, Growth, VirtualMemoryResource, VirtualOptions};
    /// use pagewise::{Device, Machine, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let options = VirtualOptions::default();
    /// let resource = Arc::new(VirtualMemoryResource::new(&machine, Device::FIRST, options)?);
    /// let mut first = Allocation::new(resource.clone(), 2 << 20, &stream)?;
    /// let _neighbour = Allocation::new(resource.clone(), 2 << 20, &stream)?;
    /// assert_eq!(resource.grow(&mut first, 1 << 20)?, Growth::Enough);
    /// assert_eq!(resource.grow(&mut first, 4 << 20)?, Growth::Moved);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn grow(&self, allocation: &mut Allocation, bytes: u64) -> Result<Growth> {
        if !allocation.is_of(self) {
            let why = "the allocation is of another resource, or of an adaptor around this one";
            return Err(invalid(GROW, why));
        }
        if bytes <= allocation.span().bytes {
            return Ok(Growth::Enough);
        }
        let wanted = self.rounded(GROW, bytes)?;
        let start = allocation.device_ptr();
        let Some(mut parts) = self.held().live.remove(&start) else {
            return Err(invalid(GROW, "the allocation was given back"));
        };
        let grown = match wanted.checked_sub(parts.bytes()) {
            None | Some(0) => Ok(Growth::Enough),
            Some(more) => parts.grow(&self.machine, &self.terms, more, || allocation.wait()),
        };
        let now = parts.start();
        self.held().live.insert(now, parts);
        let growth = grown?;
        allocation.becomes(now, bytes);
        Ok(growth)
    }

    fn rounded(&self, operation: &'static str, bytes: u64) -> Result<u64> {
        bytes.checked_next_multiple_of(self.granularity_bytes).ok_or_else(|| {
            invalid(operation, format!("{bytes} bytes are more than addresses can hold"))
        })
    }

    /// A panic elsewhere leaves lists of parts as good as they were.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: a resource has to give memory of the size and alignment that it promises, to one owner at
// a time. All of an allocation is mapped and open to its place before its address is given, at a
// multiple of the page size, and physical memory and addresses are of one allocation only. Memory
// of the host can be read and written by the host, which has access to it.
unsafe impl MemoryResource for VirtualMemoryResource {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn memory_kind(&self) -> MemoryKind {
        match self.place {
            Place::Device(_) => MemoryKind::Device,
            Place::Host(_) => MemoryKind::Pinned,
        }
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        check_request(&self.machine, bytes, stream)?;
        let parts = Parts::new(&self.machine, &self.terms, self.rounded("allocate", bytes)?)?;
        let start = parts.start();
        self.held().live.insert(start, parts);
        Ok(start)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, _: u64, stream: &Stream) -> Result<()> {
        let Some(mut parts) = self.held().live.remove(&ptr) else {
            return Err(invalid("deallocate", "the memory is not of this resource"));
        };
        // The caller promised that only work of the stream uses the memory.
        let waited = stream.synchronize();
        let released = parts.release(&self.machine);
        if !parts.is_empty() {
            self.held().left.push(parts);
        }
        waited.and(released)
    }
}

impl Drop for VirtualMemoryResource {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.held().left);
        for mut parts in left {
            self.machine.on_drop(|| parts.release(&self.machine));
        }
    }
}
