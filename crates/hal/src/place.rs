//! Devices, processors and locations.

use std::fmt;

/// A device by its ordinal in this process, from 0 on.
///
/// The number is signed as in the ABI, so that a program can pass an ordinal that does not exist:
/// the driver answers such calls, and so must every back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceId(pub i32);

/// A processor that accesses memory: the host or one GPU.
///
/// Ordered host first, then the GPUs by ordinal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Processor(i32);

impl Processor {
    /// The host.
    pub const HOST: Self = Self(-1);

    /// The GPU with this ordinal.
    ///
    /// # Panics
    /// If the ordinal passes `i32::MAX`.
    #[must_use]
    #[inline]
    pub const fn device(ordinal: u32) -> Self {
        assert!(ordinal <= i32::MAX as u32, "a device ordinal fits in 31 bits");
        Self(ordinal.cast_signed())
    }

    /// The GPU's ordinal, or `None` for the host.
    #[must_use]
    #[inline]
    pub const fn device_ordinal(self) -> Option<u32> {
        if self.0 < 0 { None } else { Some(self.0.cast_unsigned()) }
    }

    /// The driver's number: -1 for the host, else the ordinal.
    #[must_use]
    #[inline]
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    /// Whether this is the host.
    #[must_use]
    pub const fn is_host(self) -> bool {
        self.0 < 0
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device_ordinal() {
            None => f.write_str("host"),
            Some(ordinal) => write!(f, "gpu{ordinal}"),
        }
    }
}

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The kind of place that a [`Location`] names (`CUmemLocationType`).
///
/// CUDA adds values: 5 came with 13.2, 6 with 13.4. Any integer is a value of this type, and the
/// back end decides which of them a call accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LocationKind(pub i32);

impl LocationKind {
    /// No place (`CU_MEM_LOCATION_TYPE_INVALID`, from 13.0 also `NONE`).
    pub const INVALID: Self = Self(0);
    /// A device; the id is its ordinal.
    pub const DEVICE: Self = Self(1);
    /// The host; the id is ignored. From 12.2.
    pub const HOST: Self = Self(2);
    /// A host NUMA node; the id is its number. From 12.2.
    pub const HOST_NUMA: Self = Self(3);
    /// The NUMA node nearest to the calling thread; the id is ignored. From 12.2.
    pub const HOST_NUMA_CURRENT: Self = Self(4);
    /// A place that this process cannot see. Calls return it and do not take it. From 13.2.
    pub const INVISIBLE: Self = Self(5);
    /// A locality domain of a device; pools only. From 13.4.
    pub const DEVICE_LOCALITY_DOMAIN: Self = Self(6);
}

/// Where memory may live (`CUmemLocation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Location {
    /// The kind of place.
    pub kind: LocationKind,
    /// The number of the place among those of its kind.
    pub id: i32,
}

impl Location {
    /// The host, whatever the NUMA node.
    pub const HOST: Self = Self { kind: LocationKind::HOST, id: 0 };
    /// The NUMA node nearest to the calling thread.
    pub const HOST_NUMA_CURRENT: Self = Self { kind: LocationKind::HOST_NUMA_CURRENT, id: 0 };
    /// No place.
    pub const NONE: Self = Self { kind: LocationKind::INVALID, id: 0 };

    /// The ordinal that stands for the host in the ordinal form of calls (`CU_DEVICE_CPU`).
    pub const ORDINAL_HOST: i32 = -1;
    /// The ordinal that stands for "none or mixed" in answers (`CU_DEVICE_INVALID`).
    pub const ORDINAL_INVALID: i32 = -2;

    /// A device.
    #[must_use]
    pub const fn device(device: DeviceId) -> Self {
        Self { kind: LocationKind::DEVICE, id: device.0 }
    }

    /// A host NUMA node.
    #[must_use]
    pub const fn host_numa(node: i32) -> Self {
        Self { kind: LocationKind::HOST_NUMA, id: node }
    }
}
