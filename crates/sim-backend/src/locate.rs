//! The locations of the simulated machine: those that exist, the processor that each names, and
//! their names in answers.
//!
//! Calls name a location by an ordinal or by a [`Location`]; behind the calls there are only
//! [`Processor`]s. All conversions between the three are here. The answer to a location that names
//! no processor (which code, at which step) is the call's own.

use pagewise_hal::{DeviceId, Location, LocationKind, Processor};

/// The answer of attribute reads where there is no location.
pub(crate) const NO_LOCATION: Location =
    Location { kind: LocationKind::INVALID, id: Location::ORDINAL_INVALID };

/// The devices and host NUMA nodes that the simulated machine has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Topology {
    pub(crate) devices: u32,
    pub(crate) host_numa_nodes: u32,
}

/// The reason why a location names no processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The device does not exist.
    Device,
    /// The NUMA node does not exist.
    Node,
    /// The type is not 1 to 4.
    Type,
}

impl Topology {
    #[inline]
    pub(crate) fn has_device(&self, device: DeviceId) -> bool {
        u32::try_from(device.0).is_ok_and(|ordinal| ordinal < self.devices)
    }

    /// The processor that has the memory of a location.
    ///
    /// # Errors
    /// If the location does not exist.
    pub(crate) fn processor(&self, location: Location) -> Result<Processor, Unknown> {
        let number = |end: u32| u32::try_from(location.id).ok().filter(|&number| number < end);
        match location.kind {
            LocationKind::DEVICE => {
                number(self.devices).map(Processor::device).ok_or(Unknown::Device)
            }
            LocationKind::HOST | LocationKind::HOST_NUMA_CURRENT => Ok(Processor::HOST),
            LocationKind::HOST_NUMA => {
                number(self.host_numa_nodes).map(|_| Processor::HOST).ok_or(Unknown::Node)
            }
            _ => Err(Unknown::Type),
        }
    }
}

/// The location that the ordinal form of a call names: -1 the host, else a device.
pub(crate) const fn of_ordinal(ordinal: i32) -> Location {
    match ordinal {
        Location::ORDINAL_HOST => Location::HOST,
        device => Location::device(DeviceId(device)),
    }
}

/// The processor that a device is. It has to exist.
pub(crate) fn processor_of(device: DeviceId) -> Processor {
    Processor::device(device.0.cast_unsigned())
}

/// The location of a processor's memory.
pub(crate) fn of_processor(processor: Processor) -> Location {
    of_ordinal(processor.as_raw())
}

/// A location as the driver records it in a single call: with -1 and 0 for the ids that it ignores.
/// Batch calls record the id that was passed (CONTRACT-52).
pub(crate) const fn normalised(location: Location) -> Location {
    let id = match location.kind {
        LocationKind::HOST => Location::ORDINAL_HOST,
        LocationKind::HOST_NUMA_CURRENT => 0,
        _ => location.id,
    };
    Location { kind: location.kind, id }
}

/// The answer of the attributes that know ordinals only: every host form is -1.
pub(crate) const fn ordinal(location: Location) -> i32 {
    match location.kind {
        LocationKind::DEVICE => location.id,
        LocationKind::INVALID => Location::ORDINAL_INVALID,
        _ => Location::ORDINAL_HOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_location_names_a_processor_or_has_a_reason_not_to() {
        let topology = Topology { devices: 2, host_numa_nodes: 1 };
        let at = |kind, id| topology.processor(Location { kind: LocationKind(kind), id });
        assert_eq!(at(1, 1), Ok(Processor::device(1)));
        assert_eq!(at(1, 2), Err(Unknown::Device));
        assert_eq!(at(1, -1), Err(Unknown::Device));
        assert_eq!(at(2, 77), Ok(Processor::HOST), "the host's id is ignored");
        assert_eq!(at(3, 0), Ok(Processor::HOST));
        assert_eq!(at(3, 1), Err(Unknown::Node));
        assert_eq!(at(4, 9), Ok(Processor::HOST));
        assert_eq!(at(0, 0), Err(Unknown::Type));
        assert_eq!(at(5, 0), Err(Unknown::Type));
        assert_eq!(topology.processor(of_ordinal(-1)), Ok(Processor::HOST));
        assert_eq!(topology.processor(of_ordinal(-2)), Err(Unknown::Device));
    }

    #[test]
    fn a_processor_comes_back_from_its_location() {
        let topology = Topology { devices: 2, host_numa_nodes: 1 };
        for processor in [Processor::HOST, Processor::device(0), Processor::device(1)] {
            assert_eq!(topology.processor(of_processor(processor)), Ok(processor));
        }
    }
}
