//! Places: devices, the host and its NUMA nodes, as homes of memory and as processors.
//!
//! Plain values, made without a back end: [`Device`], [`Host`], and [`Place`], which is one or the
//! other. They compare, hash, sort (devices by ordinal, then the host, as the driver lists them)
//! and serialize by value. A number that no CUDA call can take is refused where the place is made;
//! whether a device *exists* is a fact of a machine ([`Machine::device`](crate::Machine::device))
//! and is checked by each call.
//!
//! A back end takes [`Location`], which is the driver's structure and can express wrong values; a
//! `Place` cannot, and every `Place` converts into a `Location`.
//!
//! Source: `CUmemLocation` and `CUmemLocationType` of `cuda.h` 12.2 to 13.5.

use std::fmt;

use pagewise_hal::{DeviceId, Error, Location, LocationKind, Processor, Result};

use crate::refuse::invalid;

/// Most that a field of `CUmemLocation` holds: it is a C `int`.
const ID_MAX: u32 = i32::MAX.cast_unsigned();

/// A device by its ordinal in this process.
///
/// ```
/// use pagewise::Device;
///
/// assert_eq!(Device::FIRST, Device::new(0)?);
/// assert!(Device::new(1)? > Device::FIRST);
/// assert_eq!(Device::new(3)?.to_string(), "device 3");
/// assert!(Device::new(u32::MAX).is_err());
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "u32", try_from = "u32"))]
pub struct Device(u32);

impl Device {
    /// Device 0.
    pub const FIRST: Self = Self(0);

    /// The device with this ordinal, whether it exists or not.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) above `i32::MAX`, the largest ordinal that the driver can
    /// name.
    pub fn new(ordinal: u32) -> Result<Self> {
        if ordinal > ID_MAX {
            return Err(invalid("device", format!("ordinal {ordinal} is above {ID_MAX}")));
        }
        Ok(Self(ordinal))
    }

    /// Its ordinal.
    #[must_use]
    pub const fn ordinal(self) -> u32 {
        self.0
    }

    /// The device as back ends name it.
    #[must_use]
    pub const fn id(self) -> DeviceId {
        DeviceId(self.0.cast_signed())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

impl TryFrom<u32> for Device {
    type Error = Error;

    fn try_from(ordinal: u32) -> Result<Self> {
        Self::new(ordinal)
    }
}

impl From<Device> for u32 {
    fn from(device: Device) -> Self {
        device.0
    }
}

/// A host NUMA node by its number.
///
/// ```
/// use pagewise::NumaNode;
///
/// assert_eq!(NumaNode::new(1)?.number(), 1);
/// assert!(NumaNode::new(1 << 31).is_err(), "the driver's field is a C int");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "u32", try_from = "u32"))]
pub struct NumaNode(u32);

impl NumaNode {
    /// The node with this number, whether the machine has it or not.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) above `i32::MAX`.
    pub fn new(number: u32) -> Result<Self> {
        if number > ID_MAX {
            return Err(invalid("NUMA node", format!("node {number} is above {ID_MAX}")));
        }
        Ok(Self(number))
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for NumaNode {
    type Error = Error;

    fn try_from(number: u32) -> Result<Self> {
        Self::new(number)
    }
}

impl From<NumaNode> for u32 {
    fn from(node: NumaNode) -> Self {
        node.0
    }
}

/// The host, or a part of it.
///
/// The parts need a driver of CUDA 12.2 or later
/// ([`Capabilities::locations`](crate::Capabilities)); with an older one calls return
/// `Unsupported`.
///
/// ```
/// use pagewise::Host;
///
/// assert_eq!(Host::node(1)?, Host::node(1)?);
/// assert_ne!(Host::node(0)?, Host::Any, "a node is not the host as a whole");
/// assert_eq!(Host::node(1)?.to_string(), "host node 1");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Host {
    /// The host, whatever the NUMA node.
    #[default]
    Any,
    /// One NUMA node.
    Node(NumaNode),
    /// The NUMA node nearest to the calling thread.
    CurrentNode,
}

impl Host {
    /// A NUMA node by its number.
    ///
    /// # Errors
    /// As [`NumaNode::new`].
    pub fn node(number: u32) -> Result<Self> {
        NumaNode::new(number).map(Self::Node)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("host"),
            Self::Node(node) => write!(f, "host node {}", node.0),
            Self::CurrentNode => f.write_str("host current node"),
        }
    }
}

/// A device, or the host.
///
/// ```
/// use std::collections::BTreeSet;
/// use pagewise::{Device, Host, Location, Place};
///
/// let places: BTreeSet<Place> = [Host::Any.into(), Device::FIRST.into()].into();
/// assert_eq!(places.first(), Some(&Place::Device(Device::FIRST)), "devices come first");
/// assert!(Place::from(Host::CurrentNode).is_numa() && !Place::HOST.is_numa());
/// assert_eq!(Location::from(Place::HOST), Location::HOST);
/// assert_eq!(Place::of_location(Location::NONE), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Place {
    /// A device.
    Device(Device),
    /// The host or a part of it.
    Host(Host),
}

impl Place {
    /// The host, whatever the NUMA node.
    pub const HOST: Self = Self::Host(Host::Any);

    /// Whether only the location form of calls can name it, which CUDA has from 12.2 on.
    #[must_use]
    pub const fn is_numa(self) -> bool {
        matches!(self, Self::Host(Host::Node(_) | Host::CurrentNode))
    }

    /// The place of a location that a back end returned, or `None` for no place and for kinds of
    /// place that this crate does not know.
    #[must_use]
    pub fn of_location(location: Location) -> Option<Self> {
        let number = || u32::try_from(location.id).ok();
        match location.kind {
            LocationKind::DEVICE => number().map(|n| Self::Device(Device(n))),
            LocationKind::HOST => Some(Self::HOST),
            LocationKind::HOST_NUMA => number().map(|n| Self::Host(Host::Node(NumaNode(n)))),
            LocationKind::HOST_NUMA_CURRENT => Some(Self::Host(Host::CurrentNode)),
            _ => None,
        }
    }

    /// The place that an ordinal answer names: a device, -1 the host, anything else none.
    pub(crate) fn of_ordinal(ordinal: i32) -> Option<Self> {
        match ordinal {
            Location::ORDINAL_HOST => Some(Self::HOST),
            n => u32::try_from(n).ok().map(|n| Self::Device(Device(n))),
        }
    }

    /// Its ordinal in the ordinal form of calls; `None` if it has none.
    pub(crate) const fn ordinal(self) -> Option<i32> {
        match self {
            Self::Device(device) => Some(device.id().0),
            Self::Host(Host::Any) => Some(Location::ORDINAL_HOST),
            Self::Host(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => device.fmt(f),
            Self::Host(host) => host.fmt(f),
        }
    }
}

impl From<Device> for Place {
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}

impl From<Host> for Place {
    fn from(host: Host) -> Self {
        Self::Host(host)
    }
}

impl From<Processor> for Place {
    fn from(processor: Processor) -> Self {
        processor.device_ordinal().map_or(Self::HOST, |ordinal| Self::Device(Device(ordinal)))
    }
}

impl From<Place> for Location {
    fn from(place: Place) -> Self {
        match place {
            Place::Device(device) => Self::device(device.id()),
            Place::Host(Host::Any) => Self::HOST,
            Place::Host(Host::Node(node)) => Self::host_numa(node.0.cast_signed()),
            Place::Host(Host::CurrentNode) => Self::HOST_NUMA_CURRENT,
        }
    }
}
