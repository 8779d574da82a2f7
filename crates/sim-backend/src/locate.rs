//! Which locations the simulated machine has: the part of argument checking that every call
//! shares. What a call makes of the answer (which code, at which step) is the call's own.

use pagewise_hal::{DeviceId, Location, LocationKind, Processor};

/// The devices and host NUMA nodes that the simulated machine has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Topology {
    pub(crate) devices: u32,
    pub(crate) host_numa_nodes: u32,
}

/// A location that names a place, or why it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Located {
    Device(u32),
    Host,
    HostNuma(i32),
    HostNumaCurrent,
    /// A device that does not exist.
    UnknownDevice,
    /// A NUMA node that does not exist.
    UnknownNode,
    /// A type that is not 1 to 4.
    UnknownType,
}

impl Topology {
    pub(crate) fn has_device(&self, device: DeviceId) -> bool {
        u32::try_from(device.0).is_ok_and(|ordinal| ordinal < self.devices)
    }

    /// The place that an ordinal names: -1 the host, else a device.
    pub(crate) fn locate_ordinal(&self, ordinal: i32) -> Located {
        match u32::try_from(ordinal) {
            Ok(device) if device < self.devices => Located::Device(device),
            _ if ordinal == Location::ORDINAL_HOST => Located::Host,
            _ => Located::UnknownDevice,
        }
    }

    /// The place that a location names.
    pub(crate) fn locate(&self, location: Location) -> Located {
        match location.kind {
            LocationKind::DEVICE => match u32::try_from(location.id) {
                Ok(device) if device < self.devices => Located::Device(device),
                _ => Located::UnknownDevice,
            },
            LocationKind::HOST => Located::Host,
            LocationKind::HOST_NUMA => match u32::try_from(location.id) {
                Ok(node) if node < self.host_numa_nodes => Located::HostNuma(location.id),
                _ => Located::UnknownNode,
            },
            LocationKind::HOST_NUMA_CURRENT => Located::HostNumaCurrent,
            _ => Located::UnknownType,
        }
    }
}

impl Located {
    /// The processor that has the memory; `None` if it names no place.
    pub(crate) fn processor(self) -> Option<Processor> {
        match self {
            Self::Device(ordinal) => Some(Processor::device(ordinal)),
            Self::Host | Self::HostNuma(_) | Self::HostNumaCurrent => Some(Processor::HOST),
            Self::UnknownDevice | Self::UnknownNode | Self::UnknownType => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_location_is_a_place_or_a_reason() {
        let topology = Topology { devices: 2, host_numa_nodes: 1 };
        let at = |kind, id| topology.locate(Location { kind: LocationKind(kind), id });
        assert_eq!(at(1, 1), Located::Device(1));
        assert_eq!(at(1, 2), Located::UnknownDevice);
        assert_eq!(at(1, -1), Located::UnknownDevice);
        assert_eq!(at(2, 77), Located::Host, "the host's id is ignored");
        assert_eq!(at(3, 0), Located::HostNuma(0));
        assert_eq!(at(3, 1), Located::UnknownNode);
        assert_eq!(at(4, 9), Located::HostNumaCurrent);
        assert_eq!(at(0, 0), Located::UnknownType);
        assert_eq!(at(5, 0), Located::UnknownType);
        assert_eq!(topology.locate_ordinal(-1), Located::Host);
        assert_eq!(topology.locate_ordinal(-2), Located::UnknownDevice);
    }
}
