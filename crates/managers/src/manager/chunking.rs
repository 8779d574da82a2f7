//! The number of runs of a computation that fit at once, in exact arithmetic without memory or
//! driver.
//!
//! An array along the run axis takes a number of bytes *per run*; other arrays have a fixed size. A
//! chunk of `n` runs fits if the bytes of all arrays at `n` runs, each rounded to the granularity
//! of the allocator, are no more than the available bytes. The sum grows with `n`, so bisection
//! finds the largest `n` between two bounds in closed form. Without rounding both bounds are
//! `(available - fixed) / bytes per run`. All sums are `u128`, far more than the memory of any
//! machine, and they saturate.
//!
//! ```
//! use pagewise_managers::manager::{ChunkPolicy, RunFootprint, RunArray};
//!
//! // 400 runs of 4 bytes into 1599 bytes: all but one run, and that one.
//! let footprint = RunFootprint::new(400).array(RunArray::new(4));
//! let chunks = footprint.chunks(1599, ChunkPolicy::exact())?;
//! assert_eq!((chunks.chunk_length(), chunks.chunks()), (399, 2));
//! assert_eq!(chunks.range(1)?, 399..400);
//! # Ok::<(), pagewise_managers::manager::ManagerError>(())
//! ```

use std::ops::Range;

use super::error::{ManagerError, Result};

/// The policy by which chunks are chosen. By default they are as long as memory allows.
///
/// ```
/// use pagewise_managers::manager::{ChunkPolicy, RunFootprint, RunArray};
///
/// let footprint = RunFootprint::new(400).array(RunArray::new(4));
/// let policy = ChunkPolicy::exact().balanced(true);
/// assert_eq!(footprint.chunks(1599, policy)?.chunk_length(), 200, "not 399 and 1");
/// let policy = ChunkPolicy::exact().multiple(32);
/// assert_eq!(footprint.chunks(1599, policy)?.chunk_length(), 384);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkPolicy {
    granularity_bytes: u64,
    block_bytes: u64,
    margin_bytes: u64,
    headroom_permille: u16,
    granule_bytes: u64,
    multiple: u64,
    min_length: u64,
    balanced: bool,
    buffers: u64,
    retries: u32,
}

impl Default for ChunkPolicy {
    /// The policy of drivers: arrays of more than 1 MiB take blocks of 2 MiB, smaller ones
    /// multiples of 512 bytes. An allocation that fails for lack of memory is tried twice more with
    /// shorter chunks.
    fn default() -> Self {
        Self { granularity_bytes: 512, block_bytes: 2 << 20, retries: 2, ..Self::exact() }
    }
}

impl ChunkPolicy {
    /// Each array counts its bytes and no more; no margin; the longest chunk that fits; one try.
    #[must_use]
    pub const fn exact() -> Self {
        Self {
            granularity_bytes: 1,
            block_bytes: 1,
            margin_bytes: 0,
            headroom_permille: 0,
            granule_bytes: 0,
            multiple: 1,
            min_length: 1,
            balanced: false,
            buffers: 1,
            retries: 0,
        }
    }

    /// The policy of cubie 0.17: each array counts its bytes and no more, 2 % of what is available
    /// and 32 MiB of what is free are left, chunks are equally long, one try.
    ///
    /// ```
    /// use pagewise_managers::manager::{ChunkPolicy, RunFootprint, RunArray};
    ///
    /// let footprint = RunFootprint::new(1000).array(RunArray::new(1 << 20));
    /// let chunks = footprint.chunks(800 << 20, ChunkPolicy::cubie())?;
    /// assert_eq!((chunks.chunks(), chunks.chunk_length()), (2, 500), "768 would fit");
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    #[must_use]
    pub const fn cubie() -> Self {
        Self::exact().headroom_permille(20).granule_bytes(32 << 20).balanced(true)
    }

    /// Sizes of allocations are rounded up to a multiple of this; 0 counts as 1.
    #[must_use]
    pub const fn granularity_bytes(mut self, bytes: u64) -> Self {
        self.granularity_bytes = if bytes == 0 { 1 } else { bytes };
        self
    }

    /// Sizes beyond half of this are rounded up to it, as two such arrays do not fit into one
    /// block; 0 counts as 1.
    #[must_use]
    pub const fn block_bytes(mut self, bytes: u64) -> Self {
        self.block_bytes = if bytes == 0 { 1 } else { bytes };
        self
    }

    /// The bytes that are left free.
    #[must_use]
    pub const fn margin_bytes(mut self, bytes: u64) -> Self {
        self.margin_bytes = bytes;
        self
    }

    /// The part of the available bytes that is left unused, in thousandths; more than 1000 count as
    /// 1000. It grows with the memory, where [`margin_bytes`](Self::margin_bytes) does not.
    #[must_use]
    pub const fn headroom_permille(mut self, parts: u16) -> Self {
        self.headroom_permille = if parts > 1000 { 1000 } else { parts };
        self
    }

    /// The bytes of the device's free memory that are left: as many as a pool may reserve beyond
    /// what its arrays take, 32 MiB for the driver's pools. They are not taken from what a share
    /// allows.
    #[must_use]
    pub const fn granule_bytes(mut self, bytes: u64) -> Self {
        self.granule_bytes = bytes;
        self
    }

    /// Chunks but the last are a multiple of so many runs, such as a warp; 0 counts as 1.
    #[must_use]
    pub const fn multiple(mut self, runs: u64) -> Self {
        self.multiple = if runs == 0 { 1 } else { runs };
        self
    }

    /// Refuses chunks of fewer runs than this, which are not worth a launch.
    #[must_use]
    pub const fn min_length(mut self, runs: u64) -> Self {
        self.min_length = if runs == 0 { 1 } else { runs };
        self
    }

    /// Makes chunks as equally long as the multiple allows, without more chunks.
    #[must_use]
    pub const fn balanced(mut self, on: bool) -> Self {
        self.balanced = on;
        self
    }

    /// The number of chunks that are on the device at once, so that one can be copied while work
    /// uses another; 0 counts as 1. If all runs fit, there is one chunk.
    #[must_use]
    pub const fn buffers(mut self, count: u64) -> Self {
        self.buffers = if count == 0 { 1 } else { count };
        self
    }

    /// The number of times that an allocation is tried again with an eighth less, if it failed for
    /// lack of memory. Other processes may allocate too, so the free amount is a guess.
    #[must_use]
    pub const fn retries(mut self, times: u32) -> Self {
        self.retries = times;
        self
    }

    /// The bytes that arrays may take if so many are available, of so many that the device has
    /// free.
    pub(crate) fn allocatable(&self, available: u128, free: u128) -> u128 {
        let headroom = available.saturating_mul(self.headroom_permille.into()) / 1000;
        let room = (available - headroom).min(free.saturating_sub(self.granule_bytes.into()));
        room.saturating_sub(self.margin_bytes.into())
    }

    /// The bytes that have to become free so that arrays may take so many more.
    pub(crate) fn freed_for(&self, bytes: u128) -> u128 {
        match 1000_u128.checked_sub(self.headroom_permille.into()) {
            None | Some(0) => u128::MAX,
            Some(1000) => bytes,
            // Headroom is rounded down, which can take one byte more than its part.
            Some(parts) => bytes.saturating_add(1).saturating_mul(1000).div_ceil(parts),
        }
    }

    pub(crate) const fn tries(&self) -> u32 {
        self.retries.saturating_add(1)
    }

    /// The number of chunks of an array on the device at once, if it has this number of chunks.
    pub(crate) const fn slots(&self, chunks: u64) -> u64 {
        if chunks < 2 { 1 } else { self.buffers }
    }

    /// The size that an allocation of so many bytes counts as. It never falls as they grow.
    pub(crate) fn rounded(&self, bytes: u128) -> u128 {
        let to = |unit: u64| bytes.div_ceil(unit.into()).saturating_mul(unit.into());
        let granules = to(self.granularity_bytes);
        if bytes > u128::from(self.block_bytes) / 2 {
            return granules.max(to(self.block_bytes));
        }
        granules
    }

    /// The unit of rounding: rounding adds fewer bytes than this.
    fn unit(&self) -> u128 {
        self.granularity_bytes.max(self.block_bytes).into()
    }
}

/// An array along the run axis, as arithmetic sees it.
///
/// ```
/// use pagewise_managers::manager::RunArray;
/// assert_eq!(RunArray::new(8).bytes_per_run(), 8);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunArray {
    bytes_per_run: u128,
    windowed: bool,
}

impl RunArray {
    /// An array that takes this many bytes for each run.
    #[must_use]
    pub const fn new(bytes_per_run: u128) -> Self {
        Self { bytes_per_run, windowed: false }
    }

    /// The same array in managed memory that is allocated whole. Two chunks of it have to be on the
    /// device at a time: the one in use and the next.
    #[must_use]
    pub const fn windowed(mut self) -> Self {
        self.windowed = true;
        self
    }

    /// Its bytes for each run.
    #[must_use]
    pub const fn bytes_per_run(&self) -> u128 {
        self.bytes_per_run
    }

    fn copies(&self, chunks: u64, policy: ChunkPolicy) -> u128 {
        let copies = if self.windowed { chunks.min(2) } else { policy.slots(chunks) };
        copies.max(1).into()
    }
}

/// The bytes that the arrays of one computation take.
///
/// ```
/// use pagewise_managers::manager::{ChunkPolicy, RunFootprint, RunArray};
///
/// let footprint = RunFootprint::new(100).array(RunArray::new(10)).fixed(50);
/// assert_eq!(footprint.whole_bytes(ChunkPolicy::exact()), 1050);
/// assert_eq!(footprint.chunks(250, ChunkPolicy::exact())?.chunk_length(), 20);
/// assert!(footprint.chunks(59, ChunkPolicy::exact()).is_err(), "not one run fits");
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFootprint {
    runs: u64,
    arrays: Vec<RunArray>,
    fixed: Vec<u128>,
}

impl RunFootprint {
    /// The footprint of a computation with this number of runs, without arrays yet.
    #[must_use]
    pub const fn new(runs: u64) -> Self {
        Self { runs, arrays: Vec::new(), fixed: Vec::new() }
    }

    /// With an array along the run axis.
    #[must_use]
    pub fn array(mut self, array: RunArray) -> Self {
        self.arrays.push(array);
        self
    }

    /// With an array that is never divided.
    #[must_use]
    pub fn fixed(mut self, bytes: u128) -> Self {
        self.fixed.push(bytes);
        self
    }

    /// How many runs there are.
    #[must_use]
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// The bytes that never-divided arrays take.
    #[must_use]
    pub fn fixed_bytes(&self, policy: ChunkPolicy) -> u128 {
        let rounded = self.fixed.iter().map(|&bytes| policy.rounded(bytes));
        rounded.fold(0, u128::saturating_add)
    }

    /// The bytes that everything takes if no array is divided.
    #[must_use]
    pub fn whole_bytes(&self, policy: ChunkPolicy) -> u128 {
        self.chunk_bytes(self.runs, policy)
    }

    /// The bytes that everything takes with chunks of so many runs, buffers and windows included.
    #[must_use]
    pub fn chunk_bytes(&self, chunk_length: u64, policy: ChunkPolicy) -> u128 {
        let chunks = self.runs.div_ceil(chunk_length.max(1));
        let of_array = |array: &RunArray| {
            let bytes = array.bytes_per_run.saturating_mul(chunk_length.into());
            policy.rounded(bytes).saturating_mul(array.copies(chunks, policy))
        };
        let sum = self.arrays.iter().map(of_array).fold(0, u128::saturating_add);
        sum.saturating_add(self.fixed_bytes(policy))
    }

    /// Divides the runs so that a chunk fits into the available bytes. If all runs fit, they are
    /// one chunk.
    ///
    /// # Errors
    /// [`ManagerError::NothingToChunk`] if the arrays do not fit and none is along the run axis,
    /// [`ManagerError::UnchunkableTooLarge`] if the fixed arrays alone leave no byte,
    /// [`ManagerError::SingleRunTooLarge`] if not one run fits, or fewer than the policy asks for.
    pub fn chunks(&self, available_bytes: u128, policy: ChunkPolicy) -> Result<ChunkParameters> {
        self.chunks_of(policy.allocatable(available_bytes, available_bytes), policy)
    }

    /// As [`chunks`](Self::chunks), for bytes of which nothing has to be left.
    pub(crate) fn chunks_of(&self, budget: u128, policy: ChunkPolicy) -> Result<ChunkParameters> {
        if self.whole_bytes(policy) <= budget {
            return Ok(ChunkParameters { runs: self.runs, chunk_length: self.runs, chunks: 1 });
        }
        let fixed = self.fixed_bytes(policy);
        if self.bytes_per_run() == 0 || self.runs < 2 {
            let needed = self.whole_bytes(policy);
            return Err(ManagerError::NothingToChunk { needed, available: budget });
        }
        if fixed >= budget && fixed > 0 {
            return Err(ManagerError::UnchunkableTooLarge { needed: fixed, available: budget });
        }
        let longest = self.longest(budget, policy);
        let length = longest - longest % policy.multiple;
        if length < policy.min_length {
            let smallest = policy.min_length.max(policy.multiple).min(self.runs);
            let needed = self.chunk_bytes(smallest, policy);
            return Err(ManagerError::SingleRunTooLarge { needed, available: budget });
        }
        Ok(self.divided(length, policy))
    }

    fn bytes_per_run(&self) -> u128 {
        self.arrays.iter().map(|array| array.bytes_per_run).fold(0, u128::saturating_add)
    }

    /// The most runs below all that fit; 0 if none does.
    fn longest(&self, budget: u128, policy: ChunkPolicy) -> u64 {
        let fits = |length: u64| self.chunk_bytes(length, policy) <= budget;
        let copies = |array: &RunArray| array.copies(2, policy);
        let each = |array: &RunArray| array.bytes_per_run.saturating_mul(copies(array));
        let per_run = self.arrays.iter().map(each).fold(0, u128::saturating_add).max(1);
        let room = budget.saturating_sub(self.fixed_bytes(policy));
        let below_all = u128::from(self.runs - 1);
        let bound = |room: u128| u64::try_from((room / per_run).min(below_all)).unwrap_or(u64::MAX);
        let mut high = bound(room);
        if fits(high) {
            return high;
        }
        // Rounding adds less than one unit to each copy of each array.
        let slack = self.arrays.iter().map(copies).fold(0, u128::saturating_add);
        let slack = slack.saturating_mul(policy.unit() - 1);
        let mut low = bound(room.saturating_sub(slack));
        // `low` fits or is 0, `high` does not fit.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        low
    }

    fn divided(&self, length: u64, policy: ChunkPolicy) -> ChunkParameters {
        let chunks = self.runs.div_ceil(length);
        let chunk_length = if policy.balanced {
            // No longer than `length`, which is a multiple itself and does for all runs.
            self.runs.div_ceil(chunks).next_multiple_of(policy.multiple)
        } else {
            length
        };
        ChunkParameters::of(self.runs, chunk_length)
    }
}

/// The division of a computation's runs: chunks of one length, and a last one that may be shorter.
/// There is at least one chunk, and each has at least one run, unless there are no runs at all.
///
/// ```
/// use pagewise_managers::manager::ChunkParameters;
///
/// let chunks = ChunkParameters::of(10, 4);
/// assert_eq!(chunks.iter().collect::<Vec<_>>(), [0..4, 4..8, 8..10]);
/// assert_eq!(chunks.last_length(), 2);
/// assert!(chunks.range(3).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ChunkParameters {
    runs: u64,
    chunk_length: u64,
    chunks: u64,
}

impl Default for ChunkParameters {
    /// One chunk of one run: nothing was divided.
    fn default() -> Self {
        Self::of(1, 1)
    }
}

impl ChunkParameters {
    /// The division of `runs` runs into chunks of `chunk_length`. A length of 0 counts as 1, and
    /// one above `runs` as `runs`.
    #[must_use]
    pub fn of(runs: u64, chunk_length: u64) -> Self {
        let chunk_length = chunk_length.clamp(1, runs.max(1));
        Self { runs, chunk_length, chunks: runs.div_ceil(chunk_length).max(1) }
    }

    /// All runs.
    #[must_use]
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// The runs of each chunk but the last.
    #[must_use]
    pub const fn chunk_length(&self) -> u64 {
        self.chunk_length
    }

    /// How many chunks there are.
    #[must_use]
    pub const fn chunks(&self) -> u64 {
        self.chunks
    }

    /// The runs of the last chunk, between 1 and [`chunk_length`](Self::chunk_length).
    #[must_use]
    pub fn last_length(&self) -> u64 {
        self.runs.saturating_sub((self.chunks - 1).saturating_mul(self.chunk_length))
    }

    /// The runs of a chunk.
    ///
    /// # Errors
    /// [`ManagerError::ChunkOutOfRange`].
    pub fn range(&self, chunk: u64) -> Result<Range<u64>> {
        if chunk >= self.chunks {
            return Err(ManagerError::ChunkOutOfRange { chunk, chunks: self.chunks });
        }
        let start = chunk.saturating_mul(self.chunk_length);
        Ok(start..start.saturating_add(self.chunk_length).min(self.runs))
    }

    /// The runs of all chunks, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        (0..self.chunks).filter_map(|chunk| self.range(chunk).ok())
    }
}
