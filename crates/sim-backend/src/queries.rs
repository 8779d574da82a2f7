//! Calls that ask for attributes of devices, or for the host's page table. Reads of other attributes are
//! in `book`.

use std::ops::Range;

use pagewise_hal::{DeviceAttribute, DeviceId, PageRun, Span};

use crate::link::PeerLink;
use crate::refusal::{Checked, bad_device, invalid};
use crate::sim::Sim;

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

    /// The host's page table over a range of one allocation.
    pub(crate) fn host_page_map(&self, span: Span) -> Checked<Vec<PageRun>> {
        let Some(allocation) = self.space.holding(span) else {
            return invalid("the range is not within one live allocation");
        };
        let pages = span.pages_outward();
        if self.is_managed(allocation) {
            return Ok(self.pager.host_page_map(pages));
        }
        Ok(whole(pages, self.book().is_host_memory(allocation)))
    }
}

fn whole(pages: Range<u64>, mapped: bool) -> Vec<PageRun> {
    match pages.end - pages.start {
        0 => Vec::new(),
        pages => vec![PageRun { pages, mapped }],
    }
}
