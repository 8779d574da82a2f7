//! The processors that keep a region mapped, as a live set.

use std::collections::{BTreeSet, btree_set};
use std::fmt;

use pagewise_hal::{Error, Location, Result};

use crate::advice::check_accessor;
use crate::refuse::also;
use crate::{Machine, MemoryAdvice, Place, Region};

const OPERATION: &str = "accessed_by";

/// The processors advised as accessing *all* of a region: devices, and the host as a whole.
///
/// The set is the driver's: each question reads it by one call, and each change writes it. A change
/// of several members is checked as a whole first. Then it reads the set once, and gives advice
/// only for members that differ: removals first, each in order of places. If the driver fails
/// midway, it takes its own advice back.
///
/// A processor that keeps only a *part* of the region mapped is no member. [`insert`](Self::insert)
/// and [`remove`](Self::remove) always give their advice, so they reach such parts, too.
///
/// ```
/// use pagewise::{Device, ManagedBuffer, Place};
///
/// let buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 4096)?;
/// let accessed_by = buffer.accessed_by();
/// assert!(accessed_by.is_empty()?);
/// accessed_by.assign([Device::FIRST.into(), Place::HOST])?;
/// accessed_by.remove(Place::HOST)?;
/// assert_eq!(accessed_by.to_set()?, [Device::FIRST.into()].into());
/// // A region of the buffer has the same set, which is read from the driver each time.
/// buffer.region().accessed_by().clear()?;
/// assert!(!accessed_by.contains(Device::FIRST)?);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct AccessedBy<'b> {
    region: Region<'b>,
}

/// A set of places, from whatever names them.
fn set_of(places: impl IntoIterator<Item = impl Into<Place>>) -> BTreeSet<Place> {
    places.into_iter().map(Into::into).collect()
}

impl<'b> Region<'b> {
    /// The processors that keep it mapped, as a set that can be changed.
    #[must_use]
    pub fn accessed_by(&self) -> AccessedBy<'b> {
        AccessedBy::of(*self)
    }
}

impl<'b> AccessedBy<'b> {
    pub(crate) fn of(region: Region<'b>) -> Self {
        Self { region }
    }

    fn machine(&self) -> &'b Machine {
        self.region.machine()
    }

    /// The members, as they are now.
    ///
    /// # Errors
    /// Errors of the back end for reads of attributes.
    pub fn to_set(&self) -> Result<BTreeSet<Place>> {
        // The driver truncates a list that is too short: one place for each device and the host.
        let room = self.machine().device_count()? as usize + 1;
        let mut found = vec![Location::ORDINAL_INVALID; room];
        let asked = self.machine().backend().range_accessed_by(self.region.span, &mut found);
        self.region.named(asked)?;
        Ok(found.into_iter().filter_map(Place::of_ordinal).collect())
    }

    /// The members, as they are now, in order.
    ///
    /// # Errors
    /// As [`to_set`](Self::to_set).
    pub fn iter(&self) -> Result<btree_set::IntoIter<Place>> {
        Ok(self.to_set()?.into_iter())
    }

    /// Whether a processor is a member. A NUMA node never is; the back end is not asked then.
    ///
    /// # Errors
    /// As [`to_set`](Self::to_set).
    pub fn contains(&self, place: impl Into<Place>) -> Result<bool> {
        let place = place.into();
        if check_accessor(OPERATION, place).is_err() {
            return Ok(false);
        }
        Ok(self.to_set()?.contains(&place))
    }

    /// How many members there are.
    ///
    /// # Errors
    /// As [`to_set`](Self::to_set).
    pub fn len(&self) -> Result<usize> {
        Ok(self.to_set()?.len())
    }

    /// Whether there is no member.
    ///
    /// # Errors
    /// As [`to_set`](Self::to_set).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.to_set()?.is_empty())
    }

    /// Makes a processor a member, by one call, even if it is a member already.
    ///
    /// # Errors
    /// As [`Region::advise`].
    ///
    /// ```
    /// use pagewise::{ErrorKind, Host, ManagedBuffer, Place};
    ///
    /// let buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 4096)?;
    /// buffer.accessed_by().insert(Place::HOST)?;
    /// let error = buffer.accessed_by().insert(Host::node(0)?).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidValue);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn insert(&self, place: impl Into<Place>) -> Result<()> {
        self.region.advise(MemoryAdvice::SetAccessedBy(place.into()))
    }

    /// Takes a processor out, by one call, even if it is no member. Existing mappings stay until
    /// something else removes them.
    ///
    /// # Errors
    /// As [`Region::advise`].
    pub fn remove(&self, place: impl Into<Place>) -> Result<()> {
        self.region.advise(MemoryAdvice::UnsetAccessedBy(place.into()))
    }

    /// Makes exactly these the members.
    ///
    /// # Errors
    /// Before anything is changed, as [`Region::advise`], for any of them. If the driver fails
    /// midway, its error, with a text that says whether the members are as before, or which they
    /// are now.
    ///
    /// ```
    /// use pagewise::{Device, Host, ManagedBuffer, Place};
    ///
    /// let buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 4096)?;
    /// let accessed_by = buffer.accessed_by();
    /// accessed_by.assign([Device::FIRST])?;
    /// assert!(accessed_by.assign([Place::HOST, Host::node(0)?.into()]).is_err());
    /// assert_eq!(accessed_by.to_set()?, [Device::FIRST.into()].into(), "as before");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn assign(&self, places: impl IntoIterator<Item = impl Into<Place>>) -> Result<()> {
        let target = self.checked(places)?;
        self.change(&self.to_set()?, &target)
    }

    /// Takes all members out.
    ///
    /// # Errors
    /// As [`assign`](Self::assign).
    pub fn clear(&self) -> Result<()> {
        self.assign([Place::HOST; 0])
    }

    /// Keeps the members that a rule accepts.
    ///
    /// # Errors
    /// As [`assign`](Self::assign).
    ///
    /// ```
    /// use pagewise::{Device, ManagedBuffer, Place};
    ///
    /// let buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 4096)?;
    /// let accessed_by = buffer.accessed_by();
    /// accessed_by.assign([Device::FIRST.into(), Place::HOST])?;
    /// accessed_by.retain(|place| place != Place::HOST)?;
    /// assert_eq!(accessed_by.len()?, 1);
    /// // Python's in-place operators have methods, too.
    /// accessed_by.extend([Place::HOST])?;
    /// accessed_by.difference_with([Device::FIRST])?;
    /// accessed_by.intersect_with([Place::HOST])?;
    /// assert_eq!(accessed_by.to_set()?, [Place::HOST].into());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(Place) -> bool) -> Result<()> {
        let members = self.to_set()?;
        let target = members.iter().copied().filter(|&place| keep(place)).collect();
        self.change(&members, &target)
    }

    /// Makes these places members, too.
    ///
    /// # Errors
    /// As [`assign`](Self::assign).
    pub fn extend(&self, places: impl IntoIterator<Item = impl Into<Place>>) -> Result<()> {
        let others = self.checked(places)?;
        let members = self.to_set()?;
        self.change(&members, &(&members | &others))
    }

    /// Keeps the members that are among these.
    ///
    /// # Errors
    /// As [`assign`](Self::assign).
    pub fn intersect_with(&self, places: impl IntoIterator<Item = impl Into<Place>>) -> Result<()> {
        let others = self.checked(places)?;
        self.retain(|place| others.contains(&place))
    }

    /// Takes these places out.
    ///
    /// # Errors
    /// As [`assign`](Self::assign).
    pub fn difference_with(
        &self,
        places: impl IntoIterator<Item = impl Into<Place>>,
    ) -> Result<()> {
        let others = self.checked(places)?;
        self.retain(|place| !others.contains(&place))
    }

    /// Takes those of the places out that are members, and makes the others members.
    ///
    /// # Errors
    /// As [`assign`](Self::assign).
    pub fn symmetric_difference_with(
        &self,
        places: impl IntoIterator<Item = impl Into<Place>>,
    ) -> Result<()> {
        let others = self.checked(places)?;
        let members = self.to_set()?;
        self.change(&members, &(&members ^ &others))
    }

    /// The members and these. Changes nothing.
    ///
    /// # Errors
    /// As [`to_set`](Self::to_set).
    pub fn union(
        &self,
        places: impl IntoIterator<Item = impl Into<Place>>,
    ) -> Result<BTreeSet<Place>> {
        Ok(&self.to_set()? | &set_of(places))
    }

    /// The members that are among these. Changes nothing.
    ///
    /// # Errors
    /// As [`to_set`](Self::to_set).
    pub fn intersection(
        &self,
        places: impl IntoIterator<Item = impl Into<Place>>,
    ) -> Result<BTreeSet<Place>> {
        Ok(&self.to_set()? & &set_of(places))
    }

    /// The members that are not among these. Changes nothing.
    ///
    /// # Errors
    /// As [`to_set`](Self::to_set).
    pub fn difference(
        &self,
        places: impl IntoIterator<Item = impl Into<Place>>,
    ) -> Result<BTreeSet<Place>> {
        Ok(&self.to_set()? - &set_of(places))
    }

    /// The places that are members or among these, and not both. Changes nothing.
    ///
    /// # Errors
    /// As [`to_set`](Self::to_set).
    pub fn symmetric_difference(
        &self,
        places: impl IntoIterator<Item = impl Into<Place>>,
    ) -> Result<BTreeSet<Place>> {
        Ok(&self.to_set()? ^ &set_of(places))
    }

    fn checked(
        &self,
        places: impl IntoIterator<Item = impl Into<Place>>,
    ) -> Result<BTreeSet<Place>> {
        let places = set_of(places);
        for &place in &places {
            let checked = MemoryAdvice::SetAccessedBy(place).check(OPERATION, self.machine());
            self.region.named(checked)?;
        }
        Ok(places)
    }

    /// Gives the advice that makes `target` of `members`, or takes it back.
    fn change(&self, members: &BTreeSet<Place>, target: &BTreeSet<Place>) -> Result<()> {
        let removals = members.difference(target).copied().map(MemoryAdvice::UnsetAccessedBy);
        let additions = target.difference(members).copied().map(MemoryAdvice::SetAccessedBy);
        let mut given: Vec<MemoryAdvice> = Vec::new();
        for advice in removals.chain(additions) {
            match self.region.advise(advice) {
                Ok(()) => given.push(advice),
                Err(error) => return Err(self.take_back(given, error)),
            }
        }
        Ok(())
    }

    /// Takes advice back, last first, and adds to the error what that led to.
    #[cold]
    fn take_back(&self, given: Vec<MemoryAdvice>, error: Error) -> Error {
        let mut kept: Vec<String> = Vec::new();
        let mut added: Vec<String> = Vec::new();
        for advice in given.into_iter().rev() {
            let place = advice.place().unwrap_or(Place::HOST);
            let adds = matches!(advice, MemoryAdvice::SetAccessedBy(_));
            match self.region.advise(advice.inverse()) {
                Ok(()) if adds => added.push(place.to_string()),
                Ok(()) => {}
                Err(_) => {
                    let what = if adds { "is a member now" } else { "is no member any more" };
                    kept.push(format!("{place} {what}"));
                }
            }
        }
        let mut outcome = match kept.is_empty() {
            true => "the members are as before".to_owned(),
            false => format!("it could not all be taken back: {}", kept.join(", ")),
        };
        if !added.is_empty() {
            outcome += &format!(
                "; if {} kept parts of the range mapped before, they are not any more",
                added.join(" or ")
            );
        }
        also(error, &outcome)
    }
}

impl fmt::Debug for AccessedBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_set() {
            Ok(members) => f.debug_set().entries(members).finish(),
            Err(error) => write!(f, "{{{error}}}"),
        }
    }
}
