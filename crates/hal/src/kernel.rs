//! Kernels: accesses that a kernel is declared to make, and launches of functions of modules.
//!
//! A simulator carries out the accesses that a caller declares ([`KernelAccesses`]). It runs a
//! function of a module of PTX as a driver does ([`LaunchShape`], [`KernelParam`]).

use crate::{DeviceId, DevicePtr, Span};

/// The access of a kernel at each place of a [`KernelWalk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum KernelAccess {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads, then writes.
    Update,
    /// Updates atomically, without waiting for the old value.
    Atomic,
}

impl KernelAccess {
    /// Whether the kernel changes the memory.
    ///
    /// ```
    /// use pagewise_hal::KernelAccess;
    ///
    /// assert!(KernelAccess::Atomic.writes() && !KernelAccess::Load.writes());
    /// ```
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Load)
    }
}

/// Places at equal distances: the first byte of a range, then one every `stride_bytes` within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StridedSpan {
    /// The range that holds the places.
    pub span: Span,
    /// Bytes from one place to the next; at least 1.
    pub stride_bytes: u64,
}

impl StridedSpan {
    /// How many places there are; 0 if the stride is 0.
    ///
    /// ```
    /// use pagewise_hal::{DevicePtr, Span, StridedSpan};
    ///
    /// let places = StridedSpan { span: Span::new(DevicePtr(4096), 10), stride_bytes: 4 };
    /// assert_eq!(places.places(), 3);
    /// ```
    #[must_use]
    pub const fn places(&self) -> u64 {
        match self.stride_bytes {
            0 => 0,
            stride => self.span.bytes.div_ceil(stride),
        }
    }
}

/// The accesses of a kernel to one of its arguments: one access at each place, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KernelWalk {
    /// The access at each place.
    pub access: KernelAccess,
    /// The places, one strided range after another.
    pub places: Vec<StridedSpan>,
}

/// The accesses that a kernel makes, as its caller declares them.
///
/// The kernel is a grid-stride loop. Thread `t` of `n` makes, in its iteration `i`, the access
/// number `i * n + t` of each walk, walk by walk in their order. A walk that is shorter ends
/// earlier. With one block of one thread each access is complete before the next is made.
///
/// Contents stay as they are: the caller writes what the kernel would have written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KernelAccesses {
    /// The device that runs the kernel.
    pub device: DeviceId,
    /// Blocks of the grid; at least 1.
    pub blocks: u32,
    /// Threads of a block; at least 1.
    pub threads: u32,
    /// The walks of one iteration, in order; at least one.
    pub walks: Vec<KernelWalk>,
}

impl KernelAccesses {
    /// The most strided ranges of all walks together: a bound on the memory that a declaration
    /// takes (96 MiB).
    pub const RANGES_MAX: usize = 1 << 22;

    /// The most walks: a thread of the model looks at each in every iteration.
    pub const WALKS_MAX: usize = 64;

    /// Checks a declaration without its memory. A back end that carries declarations out refuses
    /// one that does not pass with [`InvalidValue`](crate::ErrorKind::InvalidValue), before it
    /// moves anything.
    ///
    /// # Errors
    /// The reason: the blocks, the threads or a stride are 0, there is no walk or a walk without a
    /// place, or there are more than [`WALKS_MAX`](Self::WALKS_MAX) walks or
    /// [`RANGES_MAX`](Self::RANGES_MAX) ranges.
    ///
    /// ```
    /// use pagewise_hal::{DeviceId, KernelAccesses};
    ///
    /// let nothing =
    ///     KernelAccesses { device: DeviceId(0), blocks: 1, threads: 1, walks: Vec::new() };
    /// assert!(nothing.check().is_err());
    /// ```
    pub fn check(&self) -> Result<(), &'static str> {
        if self.blocks == 0 || self.threads == 0 {
            return Err("blocks and threads must be at least 1");
        }
        if self.walks.is_empty() {
            return Err("the kernel accesses nothing: declare at least one walk");
        }
        if self.walks.len() > Self::WALKS_MAX {
            return Err("more than 64 walks: launch several kernels");
        }
        let ranges = self.walks.iter().map(|walk| walk.places.len());
        if ranges.fold(0_usize, usize::saturating_add) > Self::RANGES_MAX {
            return Err("more than 4194304 ranges: launch several kernels");
        }
        let mut places = self.walks.iter().flat_map(|walk| &walk.places);
        if places.any(|range| range.stride_bytes == 0) {
            return Err("a stride must be at least 1 byte");
        }
        let is_empty = |walk: &KernelWalk| walk.places.iter().all(|range| range.span.bytes == 0);
        if self.walks.iter().any(is_empty) {
            return Err("a walk has no place: give it at least one byte");
        }
        Ok(())
    }

    /// Whether one thread makes all accesses, in order.
    #[must_use]
    pub const fn is_serial(&self) -> bool {
        self.blocks == 1 && self.threads == 1
    }

    /// Every range of every walk.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.walks.iter().flat_map(|walk| walk.places.iter().map(|range| range.span))
    }
}

/// The grid of a launch (`cuLaunchKernel`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LaunchShape {
    /// Blocks of the grid: x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block: x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of each block.
    pub shared_bytes: u32,
}

impl LaunchShape {
    /// A grid of one dimension without dynamic shared memory.
    ///
    /// ```
    /// use pagewise_hal::LaunchShape;
    ///
    /// assert_eq!(LaunchShape::linear(132, 256).grid, [132, 1, 1]);
    /// ```
    #[must_use]
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }
}

/// The bytes of one parameter of a kernel, as the kernel declares it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KernelParam(Box<[u8]>);

impl KernelParam {
    /// A parameter of these bytes.
    ///
    /// ```
    /// use pagewise_hal::KernelParam;
    ///
    /// assert_eq!(KernelParam::new(7_u32.to_ne_bytes()).bytes(), 7_u32.to_ne_bytes());
    /// ```
    #[must_use]
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The address of memory, as a kernel's pointer.
impl From<DevicePtr> for KernelParam {
    fn from(ptr: DevicePtr) -> Self {
        Self::new(ptr.0.to_ne_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(bytes: u64, stride_bytes: u64) -> KernelWalk {
        let span = Span::new(DevicePtr(4096), bytes);
        KernelWalk { access: KernelAccess::Load, places: vec![StridedSpan { span, stride_bytes }] }
    }

    fn kernel(walks: Vec<KernelWalk>) -> KernelAccesses {
        KernelAccesses { device: DeviceId(0), blocks: 1, threads: 1, walks }
    }

    #[test]
    fn a_declaration_needs_a_grid_walks_places_and_strides() {
        assert_eq!(kernel(vec![walk(8, 4), walk(1, 4096)]).check(), Ok(()));
        for (broken, why) in [
            (KernelAccesses { blocks: 0, ..kernel(vec![walk(8, 4)]) }, "blocks and threads"),
            (KernelAccesses { threads: 0, ..kernel(vec![walk(8, 4)]) }, "blocks and threads"),
            (kernel(Vec::new()), "accesses nothing"),
            (kernel(vec![walk(8, 0)]), "stride"),
            (kernel(vec![walk(8, 4), walk(0, 4)]), "no place"),
            (kernel(vec![walk(8, 4); 65]), "64 walks"),
        ] {
            let error = broken.check().expect_err("a broken declaration");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_declaration_has_a_bounded_number_of_ranges() {
        let one = StridedSpan { span: Span::new(DevicePtr(4096), 1), stride_bytes: 1 };
        let most = |ranges| KernelWalk { access: KernelAccess::Store, places: vec![one; ranges] };
        assert_eq!(kernel(vec![most(KernelAccesses::RANGES_MAX)]).check(), Ok(()));
        let more = kernel(vec![most(KernelAccesses::RANGES_MAX), most(1)]);
        assert!(more.check().is_err_and(|why| why.contains("ranges")));
    }
}
