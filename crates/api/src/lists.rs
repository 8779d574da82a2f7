//! Arguments of the operations over many regions: regions, and places for them.
//!
//! Values are made by `into()`. So a function takes one region or many, and one place for all or
//! one for each.

use smallvec::{SmallVec, smallvec};

use crate::{Device, Host, Place, Region, RegionMut};

/// Items of which there is mostly one: a single operation allocates nothing.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// One region, or a list of them.
///
/// `into()` makes it from a [`Region`], a reference to a [`ManagedBuffer`](crate::ManagedBuffer),
/// or an array, slice or vector of regions. So functions take any of them.
///
/// ```
/// use pagewise::{ManagedBuffer, Regions};
///
/// let sim = pagewise::sim()?;
/// let (a, b) = (ManagedBuffer::<u8>::zeroed(&sim, 1)?, ManagedBuffer::<u32>::zeroed(&sim, 1)?);
/// let many: Regions<'_> = [a.region(), b.region()].into();
/// let one: Regions<'_> = (&a).into();
/// assert_eq!((many.len(), one.len()), (2, 1));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Regions<'b>(pub(crate) Few<Region<'b>>);

impl Regions<'_> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none, which every operation refuses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'b> From<Region<'b>> for Regions<'b> {
    fn from(region: Region<'b>) -> Self {
        Self(smallvec![region])
    }
}

impl<'b> From<&[Region<'b>]> for Regions<'b> {
    fn from(regions: &[Region<'b>]) -> Self {
        Self(regions.iter().cloned().collect())
    }
}

impl<'b, const N: usize> From<[Region<'b>; N]> for Regions<'b> {
    fn from(regions: [Region<'b>; N]) -> Self {
        Self(regions.into_iter().collect())
    }
}

impl<'b> From<Vec<Region<'b>>> for Regions<'b> {
    fn from(regions: Vec<Region<'b>>) -> Self {
        Self(regions.into())
    }
}

/// One region held exclusively, or a list of them.
///
/// ```
/// use pagewise::{ManagedBuffer, RegionsMut};
///
/// let mut buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 1)?;
/// let one = RegionsMut::from(&mut buffer);
/// assert_eq!(one.len(), 1);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct RegionsMut<'b>(pub(crate) Few<RegionMut<'b>>);

impl RegionsMut<'_> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none, which every operation refuses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'b> From<RegionMut<'b>> for RegionsMut<'b> {
    fn from(region: RegionMut<'b>) -> Self {
        Self(smallvec![region])
    }
}

impl<'b, const N: usize> From<[RegionMut<'b>; N]> for RegionsMut<'b> {
    fn from(regions: [RegionMut<'b>; N]) -> Self {
        Self(regions.into_iter().collect())
    }
}

impl<'b> From<Vec<RegionMut<'b>>> for RegionsMut<'b> {
    fn from(regions: Vec<RegionMut<'b>>) -> Self {
        Self(regions.into())
    }
}

/// The places that regions go to: one for all, or one for each.
///
/// ```
/// use pagewise::{Destinations, Device, Place};
///
/// assert_eq!(Destinations::from(Device::FIRST), Destinations::All(Device::FIRST.into()));
/// assert_eq!(Destinations::from([Place::HOST]), Destinations::Each(vec![Place::HOST]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destinations {
    /// The same for all.
    All(Place),
    /// One for each, in order; as many as there are regions.
    Each(Vec<Place>),
}

impl From<Place> for Destinations {
    fn from(place: Place) -> Self {
        Self::All(place)
    }
}

impl From<Device> for Destinations {
    fn from(device: Device) -> Self {
        Self::All(device.into())
    }
}

impl From<Host> for Destinations {
    fn from(host: Host) -> Self {
        Self::All(host.into())
    }
}

impl From<&[Place]> for Destinations {
    fn from(places: &[Place]) -> Self {
        Self::Each(places.to_vec())
    }
}

impl<const N: usize> From<[Place; N]> for Destinations {
    fn from(places: [Place; N]) -> Self {
        Self::Each(places.into())
    }
}

impl From<Vec<Place>> for Destinations {
    fn from(places: Vec<Place>) -> Self {
        Self::Each(places)
    }
}
