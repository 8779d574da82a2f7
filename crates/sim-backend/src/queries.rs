//! Calls that ask for attributes of devices, ranges and addresses, or for the host's page table.

use std::ops::Range;

use pagewise_hal::{
    DeviceAttribute, DeviceId, DevicePtr, DriverVersion, Location, PageRun, PointerAttribute,
    Processor, RangeAttribute, Span,
};

use crate::locate::{self, NO_LOCATION};
use crate::pools::Pool;
use crate::refusal::{Checked, bad_device, invalid};
use crate::sim::Sim;
use crate::space::{Allocation, MemoryKind};

impl Sim {
    /// `cuDeviceGetAttribute`: what the profile says.
    pub(crate) fn device_attribute(
        &self,
        device: DeviceId,
        attribute: DeviceAttribute,
    ) -> Checked<i32> {
        if !self.topology.has_device(device) {
            return bad_device("the device does not exist");
        }
        match self.config.gpu.attribute(attribute, self.config.driver_version) {
            Some(value) => Ok(value),
            None => invalid("this driver does not know the device attribute"),
        }
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
            PointerAttribute::BUFFER_ID => allocation.id,
            PointerAttribute::IS_MANAGED => u64::from(self.is_managed(allocation)),
            PointerAttribute::DEVICE_ORDINAL => match allocation.kind {
                MemoryKind::Device(device) => device.0 as u64,
                // Of a managed pool too (CONTRACT-70).
                MemoryKind::Pool(pool) => {
                    let home = self.pools.any(pool.as_raw()).and_then(Pool::home);
                    home.and_then(Processor::device_ordinal).map_or(0, u64::from)
                }
                _ => 0,
            },
            PointerAttribute::RANGE_START_ADDR => allocation.start,
            PointerAttribute::RANGE_SIZE => allocation.bytes,
            PointerAttribute::MAPPED => 1,
            PointerAttribute::ALLOWED_HANDLE_TYPES => match allocation.kind {
                MemoryKind::Pool(pool) => {
                    let pool = self.pools.any(pool.as_raw());
                    pool.map_or(0, |pool| u64::from(pool.props.handle_types.bits()))
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

    /// The host's page table over a range of one allocation.
    pub(crate) fn host_page_map(&self, span: Span) -> Checked<Vec<PageRun>> {
        let Some(allocation) = self.space.containing(span.ptr).filter(|a| a.contains(span)) else {
            return invalid("the range is not within one live allocation");
        };
        let pages = span.pages_outward();
        if self.is_managed(allocation) {
            return Ok(self.pager.host_page_map(pages));
        }
        Ok(whole(pages, self.is_host_memory(allocation)))
    }

    /// Whether the memory stays on the host.
    pub(crate) fn is_host_memory(&self, allocation: &Allocation) -> bool {
        match allocation.kind {
            MemoryKind::Pinned | MemoryKind::Registered => true,
            MemoryKind::Managed | MemoryKind::Device(_) => false,
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
