//! Advice together with the place that it needs, so that wrong pairs cannot be written.
//!
//! The table of places is that of CONTRACT-31 and CONTRACT-32.

use pagewise_hal::{Advice, Result};

use crate::refuse::invalid;
use crate::{Host, Machine, Place};

/// Advice to the driver about the use of memory. It takes effect at once, not in stream order.
///
/// [`Advice`] is the driver's number alone. This type adds the place for advice that needs one.
///
/// | advice | device | host | host node | host current node |
/// | --- | --- | --- | --- | --- |
/// | preferred location | yes | yes | yes | yes |
/// | accessed-by | yes | yes | refused | refused |
///
/// ```
/// use pagewise::{Advice, Device, MemoryAdvice};
///
/// let advice = MemoryAdvice::SetAccessedBy(Device::FIRST.into());
/// assert_eq!(advice.number(), Advice::SET_ACCESSED_BY);
/// assert_eq!(advice.place(), Some(Device::FIRST.into()));
/// assert_eq!(MemoryAdvice::SetReadMostly.inverse(), MemoryAdvice::UnsetReadMostly);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum MemoryAdvice {
    /// Reads duplicate the page on the reader; a write collapses the copies.
    SetReadMostly,
    /// Ends read duplication.
    UnsetReadMostly,
    /// Faults leave pages there, if the faulting processor can map them there.
    SetPreferredLocation(Place),
    /// Forgets the preferred location.
    UnsetPreferredLocation,
    /// Keeps the memory mapped by this processor, wherever its pages are.
    SetAccessedBy(Place),
    /// Ends accessed-by for this processor.
    UnsetAccessedBy(Place),
}

impl MemoryAdvice {
    /// The driver's number for it.
    #[must_use]
    pub const fn number(self) -> Advice {
        match self {
            Self::SetReadMostly => Advice::SET_READ_MOSTLY,
            Self::UnsetReadMostly => Advice::UNSET_READ_MOSTLY,
            Self::SetPreferredLocation(_) => Advice::SET_PREFERRED_LOCATION,
            Self::UnsetPreferredLocation => Advice::UNSET_PREFERRED_LOCATION,
            Self::SetAccessedBy(_) => Advice::SET_ACCESSED_BY,
            Self::UnsetAccessedBy(_) => Advice::UNSET_ACCESSED_BY,
        }
    }

    /// The place that it names.
    #[must_use]
    pub const fn place(self) -> Option<Place> {
        match self {
            Self::SetPreferredLocation(place)
            | Self::SetAccessedBy(place)
            | Self::UnsetAccessedBy(place) => Some(place),
            _ => None,
        }
    }

    /// The advice that takes it back: setting for unsetting, and the other way round. Unsetting a
    /// preferred location is its own inverse, because it does not say which location there was.
    #[must_use]
    pub const fn inverse(self) -> Self {
        match self {
            Self::SetReadMostly => Self::UnsetReadMostly,
            Self::UnsetReadMostly => Self::SetReadMostly,
            Self::SetPreferredLocation(_) | Self::UnsetPreferredLocation => {
                Self::UnsetPreferredLocation
            }
            Self::SetAccessedBy(place) => Self::UnsetAccessedBy(place),
            Self::UnsetAccessedBy(place) => Self::SetAccessedBy(place),
        }
    }

    /// Refuses, without asking the back end, advice that no memory can take.
    ///
    /// # Errors
    /// Without a CUDA code: `InvalidValue` for accessed-by with a NUMA node; as
    /// [`Machine::check_place`] for its place.
    ///
    /// ```
    /// use pagewise::{Device, Machine, MemoryAdvice};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// MemoryAdvice::SetReadMostly.check("configure", &machine)?;
    /// let nowhere = MemoryAdvice::SetPreferredLocation(Device::new(9)?.into());
    /// assert!(nowhere.check("configure", &machine).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn check(self, operation: &'static str, machine: &Machine) -> Result<()> {
        let Some(place) = self.place() else { return Ok(()) };
        if let Self::SetAccessedBy(_) | Self::UnsetAccessedBy(_) = self {
            check_accessor(operation, place)?;
        }
        machine.check_place(operation, place).map(|_| ())
    }
}

/// Accessed-by knows devices and the host as a whole.
pub(crate) fn check_accessor(operation: &'static str, place: Place) -> Result<()> {
    match place {
        Place::Device(_) | Place::Host(Host::Any) => Ok(()),
        Place::Host(_) => Err(invalid(
            operation,
            format!("accessed-by takes no {place}: use a device, or the host as a whole"),
        )),
    }
}
