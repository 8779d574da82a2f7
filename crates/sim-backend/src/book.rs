//! The state that reads of attributes ask for, and their answers.

use std::ops::Range;

use pagewise_hal::{
    AccessFlags, DevicePtr, DriverVersion, Location, PointerAttribute, Processor, RangeAttribute,
    Span,
};

use crate::attributes::Attributes;
use crate::config::{RangeReads, SimConfig};
use crate::lendable::Lendable;
use crate::locate::{self, NO_LOCATION, processor_of};
use crate::mappings::Mappings;
use crate::pools::{Pool, Pools};
use crate::refusal::{Checked, invalid};
use crate::space::{Allocation, Live, MemoryKind, containing};

/// The reason of a read about an address that no memory has.
pub(crate) const NO_ALLOCATION: &str = "the address belongs to no live allocation";

/// The parts of a configuration that answers depend on.
#[derive(Debug, Clone, Copy)]
struct Rules {
    devices: u32,
    driver_version: DriverVersion,
    range_reads: RangeReads,
}

impl Rules {
    fn of(config: &SimConfig) -> Self {
        let &SimConfig { devices, driver_version, range_reads, .. } = config;
        Self { devices, driver_version, range_reads }
    }
}

/// The parts of a machine's state that reads of attributes ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Book<'a> {
    live: &'a Live,
    attributes: &'a Attributes,
    pools: &'a Pools,
    mappings: &'a Mappings,
    rules: Rules,
}

/// The same, lent to readers.
#[derive(Debug)]
pub(crate) struct LentBook {
    live: Lendable<Live>,
    attributes: Lendable<Attributes>,
    pools: Lendable<Pools>,
    mappings: Lendable<Mappings>,
    rules: Rules,
}

impl LentBook {
    pub(crate) fn new(
        (live, attributes, pools, mappings): (
            &Lendable<Live>,
            &Lendable<Attributes>,
            &Lendable<Pools>,
            &Lendable<Mappings>,
        ),
        config: &SimConfig,
    ) -> Self {
        Self {
            live: live.clone(),
            attributes: attributes.clone(),
            pools: pools.clone(),
            mappings: mappings.clone(),
            rules: Rules::of(config),
        }
    }

    pub(crate) fn as_book(&self) -> Book<'_> {
        let Self { live, attributes, pools, mappings, rules } = self;
        Book { live, attributes, pools, mappings, rules: *rules }
    }
}

/// Whether an allocation is managed: by itself or through its pool.
#[inline]
pub(crate) fn is_managed(allocation: &Allocation, pools: &Pools) -> bool {
    match allocation.kind {
        MemoryKind::Managed => true,
        MemoryKind::Device(_)
        | MemoryKind::Opened(_)
        | MemoryKind::Pinned
        | MemoryKind::Mapped(_)
        | MemoryKind::Registered => false,
        MemoryKind::Pool(pool) => pools.any(pool.as_raw()).is_some_and(Pool::is_managed),
    }
}

impl<'a> Book<'a> {
    #[inline]
    pub(crate) fn new(
        (live, attributes, pools, mappings): (&'a Live, &'a Attributes, &'a Pools, &'a Mappings),
        config: &SimConfig,
    ) -> Self {
        Self { live, attributes, pools, mappings, rules: Rules::of(config) }
    }

    /// The range rule: at least one byte, starting in a live managed allocation and ending in the
    /// same one, by the bytes requested.
    pub(crate) fn managed_range(self, span: Span) -> Checked<&'a Allocation> {
        if span.bytes == 0 || span.ptr.is_null() {
            return invalid("the range is empty or starts at the null address");
        }
        match containing(self.live, span.ptr) {
            Some(allocation) if !is_managed(allocation, self.pools) => {
                invalid("the range is not managed memory")
            }
            Some(allocation) if allocation.contains(span) => Ok(allocation),
            Some(_) => invalid("the range passes the end of its allocation"),
            None => invalid("the range does not start in a live allocation"),
        }
    }

    /// The pages of a range that passed the range rule.
    pub(crate) fn managed_pages(self, span: Span) -> Checked<Range<u64>> {
        self.managed_range(span)?;
        Ok(span.pages_outward())
    }

    /// `cuMemRangeGetAttribute`, the list excepted (CONTRACT-60).
    pub(crate) fn range_attribute(self, span: Span, attribute: RangeAttribute) -> Checked<i32> {
        let with_types = self.rules.driver_version >= DriverVersion::CUDA_12_2;
        match attribute {
            RangeAttribute::ACCESSED_BY => return invalid("accessed-by is a list"),
            RangeAttribute(5..=8) if !with_types => {
                return invalid("attributes 5 to 8 need a driver of CUDA 12.2 or later");
            }
            RangeAttribute(1..=8) => {}
            _ => return invalid("the range attribute does not exist"),
        }
        let pages = self.managed_pages(span)?;
        let mode = self.rules.range_reads;
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

    /// `cuMemRangeGetAttribute` of the accessed-by list, which has this length: devices ascending,
    /// then the host.
    pub(crate) fn range_accessed_by(self, span: Span, length: usize) -> Checked<Vec<i32>> {
        if length == 0 {
            return invalid("give room for at least one processor");
        }
        let pages = self.managed_pages(span)?;
        let mode = self.rules.range_reads;
        let devices = (0..self.rules.devices).map(Processor::device);
        let having = devices
            .chain([Processor::HOST])
            .filter(|&processor| self.attributes.is_accessed_by(&pages, mode, processor))
            .map(Processor::as_raw);
        let padded = having.chain(std::iter::repeat(Location::ORDINAL_INVALID));
        Ok(padded.take(length).collect())
    }

    /// `cuPointerGetAttribute`
    #[inline]
    pub(crate) fn pointer_attribute(
        self,
        ptr: DevicePtr,
        attribute: PointerAttribute,
    ) -> Checked<u64> {
        let Some(allocation) = containing(self.live, ptr) else { return invalid(NO_ALLOCATION) };
        match allocation.kind {
            MemoryKind::Mapped(memory) => {
                self.attribute_of_mapped((allocation, memory.as_raw()), ptr, attribute)
            }
            _ => self.attribute_of(allocation, ptr, attribute),
        }
    }

    /// An attribute of an address of mapped memory (CONTRACT-123).
    fn attribute_of_mapped(
        self,
        (allocation, handle): (&Allocation, u64),
        ptr: DevicePtr,
        attribute: PointerAttribute,
    ) -> Checked<u64> {
        let Self { mappings, rules, .. } = self;
        let home = mappings.home_of(handle);
        // Reads describe the reservation.
        let whole = || mappings.reservation_of(allocation.span()).unwrap_or(allocation.span());
        // Whether a processor has any access.
        let is_open = |by: Processor| {
            mappings.at(ptr.0).is_some_and(|found| found.access(by) != AccessFlags::NONE)
        };
        let is_open_to_a_device = || (0..rules.devices).any(|id| is_open(Processor::device(id)));
        Ok(match attribute {
            PointerAttribute::MEMORY_TYPE if home.is_host() => 1,
            PointerAttribute::MEMORY_TYPE => 2,
            PointerAttribute::DEVICE_POINTER if !is_open_to_a_device() => {
                return invalid("no device has access to the mapped memory");
            }
            PointerAttribute::HOST_POINTER if !is_open(Processor::HOST) => {
                return invalid("the host does not reach the memory");
            }
            PointerAttribute::DEVICE_POINTER | PointerAttribute::HOST_POINTER => ptr.0,
            PointerAttribute::BUFFER_ID => allocation.id,
            PointerAttribute::IS_MANAGED | PointerAttribute::MEMPOOL_HANDLE => 0,
            PointerAttribute::DEVICE_ORDINAL => home.device_ordinal().map_or(0, u64::from),
            PointerAttribute::RANGE_START_ADDR => whole().ptr.0,
            PointerAttribute::RANGE_SIZE => whole().bytes,
            PointerAttribute::MAPPED => 1,
            PointerAttribute::ALLOWED_HANDLE_TYPES => {
                let memory = mappings.physical(handle);
                memory.map_or(0, |memory| u64::from(memory.props.handle_types.bits()))
            }
            _ => return invalid("this driver does not know the pointer attribute"),
        })
    }

    /// An attribute of an address of memory that is not mapped.
    #[inline]
    fn attribute_of(
        self,
        allocation: &Allocation,
        ptr: DevicePtr,
        attribute: PointerAttribute,
    ) -> Checked<u64> {
        let pool = match allocation.kind {
            MemoryKind::Pool(pool) => self.pools.any(pool.as_raw()),
            _ => None,
        };
        Ok(match attribute {
            PointerAttribute::MEMORY_TYPE if self.is_host_memory(allocation) => 1,
            PointerAttribute::MEMORY_TYPE => 2,
            PointerAttribute::DEVICE_POINTER => ptr.0,
            PointerAttribute::HOST_POINTER => {
                if !is_managed(allocation, self.pools) && !self.is_host_memory(allocation) {
                    return invalid("the host does not reach the memory");
                }
                ptr.0
            }
            PointerAttribute::BUFFER_ID => allocation.id,
            PointerAttribute::IS_MANAGED => u64::from(is_managed(allocation, self.pools)),
            PointerAttribute::DEVICE_ORDINAL => match allocation.kind {
                MemoryKind::Device(device) | MemoryKind::Opened(device) => device.0 as u64,
                // Of a managed pool too (CONTRACT-70).
                _ => {
                    let home = pool.and_then(Pool::home);
                    home.and_then(Processor::device_ordinal).map_or(0, u64::from)
                }
            },
            PointerAttribute::RANGE_START_ADDR => allocation.start,
            PointerAttribute::RANGE_SIZE => allocation.bytes,
            PointerAttribute::MAPPED => 1,
            PointerAttribute::ALLOWED_HANDLE_TYPES => {
                pool.map_or(0, |pool| u64::from(pool.props.handle_types.bits()))
            }
            PointerAttribute::MEMPOOL_HANDLE => match allocation.kind {
                MemoryKind::Pool(pool) => pool.as_raw(),
                _ => 0,
            },
            _ => return invalid("this driver does not know the pointer attribute"),
        })
    }

    /// Whether memory stays on the host.
    pub(crate) fn is_host_memory(self, allocation: &Allocation) -> bool {
        !is_managed(allocation, self.pools) && self.home_of(allocation) == Some(Processor::HOST)
    }

    /// The processor that memory is of, or that a managed pool prefers, if there is one.
    pub(crate) fn home_of(self, allocation: &Allocation) -> Option<Processor> {
        match allocation.kind {
            MemoryKind::Managed => None,
            MemoryKind::Pinned | MemoryKind::Registered => Some(Processor::HOST),
            MemoryKind::Device(device) | MemoryKind::Opened(device) => Some(processor_of(device)),
            MemoryKind::Mapped(memory) => Some(self.mappings.home_of(memory.as_raw())),
            MemoryKind::Pool(pool) => self.pools.any(pool.as_raw()).and_then(Pool::home),
        }
    }
}
