//! The kinds of memory that arrays live in.

/// Where an array lives.
///
/// | kind | memory | counts against the device | divided into chunks |
/// | --- | --- | --- | --- |
/// | `Device` | of the device | yes | yes |
/// | `Managed` | managed: pages move to the processors that use them | yes | yes, or windows over all of it |
/// | `Pinned`, `Mapped` | page-locked, of the host; the device reaches it over the link | no | no |
///
/// ```
/// use pagewise_managers::manager::ArrayMemory;
/// assert_eq!("managed".parse::<ArrayMemory>()?, ArrayMemory::Managed);
/// assert!("paged".parse::<ArrayMemory>().is_err());
/// assert!(!ArrayMemory::Pinned.is_on_device());
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum ArrayMemory {
    /// Memory of the device.
    #[default]
    Device,
    /// Page-locked host memory that the device uses where it is.
    Mapped,
    /// Page-locked host memory.
    Pinned,
    /// Managed memory.
    Managed,
}

impl ArrayMemory {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Device, Self::Mapped, Self::Pinned, Self::Managed];

    /// Whether it takes memory of the device.
    #[must_use]
    pub const fn is_on_device(self) -> bool {
        matches!(self, Self::Device | Self::Managed)
    }
}
