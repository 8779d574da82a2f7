//! Calls that ask for attributes of devices and of mapped memory, or for the host's page table. Reads
//! of other attributes are in `book`.

use std::ops::Range;

use pagewise_hal::{
    AccessFlags, DeviceAttribute, DeviceId, DevicePtr, PageRun, PointerAttribute, Processor, Span,
};

use crate::book::NO_ALLOCATION;
use crate::link::PeerLink;
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

    /// `cuPointerGetAttribute`
    pub(crate) fn pointer_attribute(
        &self,
        ptr: DevicePtr,
        attribute: PointerAttribute,
    ) -> Checked<u64> {
        let Some(allocation) = self.space.containing(ptr) else {
            return invalid(NO_ALLOCATION);
        };
        match allocation.kind {
            MemoryKind::Mapped(memory) => {
                self.attribute_of_mapped((allocation, memory.as_raw()), ptr, attribute)
            }
            _ => self.book().attribute_of(allocation, ptr, attribute),
        }
    }

    /// An attribute of an address of mapped memory (CONTRACT-123).
    fn attribute_of_mapped(
        &self,
        (allocation, handle): (&Allocation, u64),
        ptr: DevicePtr,
        attribute: PointerAttribute,
    ) -> Checked<u64> {
        let home = self.home_of_memory(handle);
        // Reads describe the reservation.
        let whole = || self.mappings.reservation_of(allocation.span()).unwrap_or(allocation.span());
        Ok(match attribute {
            PointerAttribute::MEMORY_TYPE if home.is_host() => 1,
            PointerAttribute::MEMORY_TYPE => 2,
            PointerAttribute::DEVICE_POINTER if !self.is_open_to_a_device(ptr) => {
                return invalid("no device has access to the mapped memory");
            }
            PointerAttribute::HOST_POINTER if !self.is_open(ptr, Processor::HOST) => {
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
                let memory = self.mappings.physical(handle);
                memory.map_or(0, |memory| u64::from(memory.props.handle_types.bits()))
            }
            _ => return invalid("this driver does not know the pointer attribute"),
        })
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

    /// Whether the memory stays on the host.
    fn is_host_memory(&self, allocation: &Allocation) -> bool {
        match allocation.kind {
            MemoryKind::Mapped(memory) => self.home_of_memory(memory.as_raw()).is_host(),
            _ => self.book().is_host_memory(allocation),
        }
    }
}

fn whole(pages: Range<u64>, mapped: bool) -> Vec<PageRun> {
    match pages.end - pages.start {
        0 => Vec::new(),
        pages => vec![PageRun { pages, mapped }],
    }
}
