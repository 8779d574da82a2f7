//! Calls that ask for attributes of devices, ranges and addresses, or for the host's page table.

use std::ops::Range;

use pagewise_hal::{
    AccessFlags, DeviceAttribute, DeviceId, DevicePtr, DriverVersion, Location, PageRun,
    PointerAttribute, Processor, RangeAttribute, Span,
};

use crate::link::PeerLink;
use crate::locate::{self, NO_LOCATION};
use crate::pools::Pool;
use crate::refusal::{Checked, bad_device, invalid};
use crate::sim::Sim;
use crate::space::{Allocation, MemoryKind};

/// The bus of device 0; each further device has the next. Bus 0 is the host's own.
const FIRST_PCI_BUS: i32 = 1;

impl Sim {
    /// `cuDeviceGetAttribute`: what the profile says, but for the bus, which is each device's own.
    pub(crate) fn device_attribute(
        &self,
        device: DeviceId,
        attribute: DeviceAttribute,
    ) -> Checked<i32> {
        if !self.topology.has_device(device) {
            return bad_device("the device does not exist");
        }
        let all = self.config.gpu.attribute(attribute, self.config.driver_version);
        match attribute {
            DeviceAttribute::PCI_BUS_ID => Ok(device.0 + FIRST_PCI_BUS),
            _ => all.map_or_else(|| invalid("this driver does not know the device attribute"), Ok),
        }
    }

    /// `cuDeviceCanAccessPeer`: what the link between devices allows.
    pub(crate) fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> Checked<bool> {
        if [device, peer].into_iter().any(|id| !self.topology.has_device(id)) {
            return bad_device("the device does not exist");
        }
        Ok(device != peer && self.config.gpu.peer_link != PeerLink::None)
    }

    /// `cuMemRangeGetAttribute`, the list excepted (CONTRACT-60).
    pub(crate) fn range_attribute(&self, span: Span, attribute: RangeAttribute) -> Checked<i32> {
        let with_types = self.has(DriverVersion::CUDA_12_2);
        match attribute {
            RangeAttribute::ACCESSED_BY => return invalid("accessed-by is a list"),
            RangeAttribute(5..=8) if !with_types => {
                return invalid("attributes 5 to 8 need a driver of CUDA 12.2 or later");
            }
            RangeAttribute(1..=8) => {}
            _ => return invalid("the range attribute does not exist"),
        }
        let pages = self.managed_pages(span)?;
        let mode = self.config.range_reads;
        let preferred = || self.attributes.preferred(&pages, mode).unwrap_or(NO_LOCATION);
        let prefetched = || self.attributes.last_prefetch(&pages, mode).unwrap_or(NO_LOCATION);
        Ok(match attribute {
            RangeAttribute::READ_MOSTLY => i32::from(self.attributes.read_mostly(&pages, mode)),
            RangeAttribute::PREFERRED_LOCATION => locate::ordinal(preferred()),
            RangeAttribute::LAST_PREFETCH_LOCATION => locate::ordinal(prefetched()),
            RangeAttribute::PREFERRED_LOCATION_TYPE => preferred().kind.0,
            RangeAttribute::PREFERRED_LOCATION_ID => preferred().id,
            RangeAttribute::LAST_PREFETCH_LOCATION_TYPE => prefetched().kind.0,
            _ => prefetched().id,
        })
    }

    /// `cuMemRangeGetAttribute` of the accessed-by list: devices ascending, then the host.
    pub(crate) fn range_accessed_by(&self, span: Span, out: &mut [i32]) -> Checked<()> {
        if out.is_empty() {
            return invalid("give room for at least one processor");
        }
        let pages = self.managed_pages(span)?;
        let mode = self.config.range_reads;
        let devices = (0..self.topology.devices).map(Processor::device);
        let having = devices
            .chain([Processor::HOST])
            .filter(|&processor| self.attributes.is_accessed_by(&pages, mode, processor))
            .map(Processor::as_raw);
        let padded = having.chain(std::iter::repeat(Location::ORDINAL_INVALID));
        out.iter_mut().zip(padded).for_each(|(slot, processor)| *slot = processor);
        Ok(())
    }

    /// `cuPointerGetAttribute`
    pub(crate) fn pointer_attribute(
        &self,
        ptr: DevicePtr,
        attribute: PointerAttribute,
    ) -> Checked<u64> {
        let Some(allocation) = self.space.containing(ptr) else {
            return invalid("the address belongs to no live allocation");
        };
        Ok(match attribute {
            PointerAttribute::MEMORY_TYPE if self.is_host_memory(allocation) => 1,
            PointerAttribute::MEMORY_TYPE => 2,
            PointerAttribute::DEVICE_POINTER => match allocation.kind {
                MemoryKind::Mapped(_) if !self.is_open_to_a_device(ptr) => {
                    return invalid("no device has access to the mapped memory");
                }
                _ => ptr.0,
            },
            PointerAttribute::HOST_POINTER => match self.host_reaches(allocation, ptr) {
                true => ptr.0,
                false => return invalid("the host does not reach the memory"),
            },
            PointerAttribute::BUFFER_ID => allocation.id,
            PointerAttribute::IS_MANAGED => u64::from(self.is_managed(allocation)),
            PointerAttribute::DEVICE_ORDINAL => match allocation.kind {
                MemoryKind::Device(device) | MemoryKind::Opened(device) => device.0 as u64,
                MemoryKind::Mapped(memory) => {
                    let home = self.home_of_memory(memory.as_raw());
                    home.device_ordinal().map_or(0, u64::from)
                }
                // Of a managed pool too (CONTRACT-70).
                MemoryKind::Pool(pool) => {
                    let home = self.pools.any(pool.as_raw()).and_then(Pool::home);
                    home.and_then(Processor::device_ordinal).map_or(0, u64::from)
                }
                _ => 0,
            },
            PointerAttribute::RANGE_START_ADDR => self.described(allocation).ptr.0,
            PointerAttribute::RANGE_SIZE => self.described(allocation).bytes,
            PointerAttribute::MAPPED => 1,
            PointerAttribute::ALLOWED_HANDLE_TYPES => match allocation.kind {
                MemoryKind::Pool(pool) => {
                    let pool = self.pools.any(pool.as_raw());
                    pool.map_or(0, |pool| u64::from(pool.props.handle_types.bits()))
                }
                MemoryKind::Mapped(memory) => {
                    let memory = self.mappings.physical(memory.as_raw());
                    memory.map_or(0, |memory| u64::from(memory.props.handle_types.bits()))
                }
                _ => 0,
            },
            PointerAttribute::MEMPOOL_HANDLE => match allocation.kind {
                MemoryKind::Pool(pool) => pool.as_raw(),
                _ => 0,
            },
            _ => return invalid("this driver does not know the pointer attribute"),
        })
    }

    /// The range that attributes describe: of mapped memory the reservation (CONTRACT-123).
    fn described(&self, allocation: &Allocation) -> Span {
        let reserved = match allocation.kind {
            MemoryKind::Mapped(_) => self.mappings.reservation_of(allocation.span()),
            _ => None,
        };
        reserved.unwrap_or(allocation.span())
    }

    fn is_open_to_a_device(&self, ptr: DevicePtr) -> bool {
        (0..self.topology.devices).any(|id| self.is_open(ptr, Processor::device(id)))
    }

    /// Whether a processor has any access to the mapped memory at an address.
    fn is_open(&self, ptr: DevicePtr, by: Processor) -> bool {
        self.mappings.at(ptr.0).is_some_and(|found| found.access(by) != AccessFlags::NONE)
    }

    /// The host's page table over a range of one allocation.
    pub(crate) fn host_page_map(&self, span: Span) -> Checked<Vec<PageRun>> {
        let Some(allocation) = self.space.holding(span) else {
            return invalid("the range is not within one live allocation");
        };
        let pages = span.pages_outward();
        if self.is_managed(allocation) {
            return Ok(self.pager.host_page_map(pages));
        }
        Ok(whole(pages, self.is_host_memory(allocation)))
    }

    /// Whether the driver names an address of the memory for the host: of mapped memory only with
    /// access (CONTRACT-123).
    fn host_reaches(&self, allocation: &Allocation, ptr: DevicePtr) -> bool {
        match allocation.kind {
            MemoryKind::Mapped(_) => self.is_open(ptr, Processor::HOST),
            _ => self.is_managed(allocation) || self.is_host_memory(allocation),
        }
    }

    /// Whether the memory stays on the host.
    pub(crate) fn is_host_memory(&self, allocation: &Allocation) -> bool {
        match allocation.kind {
            MemoryKind::Pinned | MemoryKind::Registered => true,
            MemoryKind::Managed | MemoryKind::Device(_) | MemoryKind::Opened(_) => false,
            MemoryKind::Mapped(memory) => self.home_of_memory(memory.as_raw()).is_host(),
            MemoryKind::Pool(pool) => self
                .pools
                .any(pool.as_raw())
                .is_some_and(|pool| !pool.is_managed() && pool.home() == Some(Processor::HOST)),
        }
    }
}

fn whole(pages: Range<u64>, mapped: bool) -> Vec<PageRun> {
    match pages.end - pages.start {
        0 => Vec::new(),
        pages => vec![PageRun { pages, mapped }],
    }
}
