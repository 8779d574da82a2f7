//! Requests and their responses.

use super::array_memory::ArrayMemory;
use super::error::{ManagerError, Result, named};

/// The element types of arrays.
///
/// ```
/// use pagewise_managers::manager::Dtype;
/// assert_eq!((Dtype::F64.size_bytes(), Dtype::of::<i32>()), (8, Some(Dtype::I32)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Dtype {
    /// `f64`
    F64,
    /// `f32`
    F32,
    /// `i64`
    I64,
    /// `i32`
    I32,
    /// `u64`
    U64,
    /// `u32`
    U32,
    /// `u8`
    U8,
}

impl Dtype {
    /// Bytes of an element.
    #[must_use]
    pub const fn size_bytes(self) -> u64 {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::U8 => 1,
        }
    }

    /// The element type of a Rust type, if there is one.
    #[must_use]
    pub fn of<T: 'static>() -> Option<Self> {
        use std::any::TypeId;
        let known = [
            (TypeId::of::<f64>(), Self::F64),
            (TypeId::of::<f32>(), Self::F32),
            (TypeId::of::<i64>(), Self::I64),
            (TypeId::of::<i32>(), Self::I32),
            (TypeId::of::<u64>(), Self::U64),
            (TypeId::of::<u32>(), Self::U32),
            (TypeId::of::<u8>(), Self::U8),
        ];
        known.into_iter().find(|(id, _)| *id == TypeId::of::<T>()).map(|(_, dtype)| dtype)
    }
}

named!(ArrayMemory, "kind of memory", {
    "device" => Device,
    "mapped" => Mapped,
    "pinned" => Pinned,
    "managed" => Managed,
});

/// A request for an array.
///
/// ```
/// use pagewise_managers::manager::{ArrayMemory, ArrayRequest, Dtype};
///
/// let request = ArrayRequest::new(Dtype::F64, [10, 3, 100]).total_runs(100);
/// assert_eq!(request.bytes(), Some(24_000));
/// assert!(request.is_chunkable());
/// assert!(!request.memory(ArrayMemory::Pinned).is_chunkable(), "the host has room");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ArrayRequest {
    /// Type of the elements.
    pub dtype: Dtype,
    /// Lengths of the axes, in row-major order. An empty list is a single element.
    pub shape: Vec<u64>,
    /// The memory that it is allocated in.
    pub memory: ArrayMemory,
    /// The axis along which the runs lie, if there is one.
    pub chunk_axis_index: Option<usize>,
    /// Whether the array must not be divided into chunks.
    pub unchunkable: bool,
    /// The number of runs. With 1, the length of the run axis is the number of runs. Otherwise an
    /// array with a run axis must have this length along it.
    pub total_runs: u64,
    /// Whether managed memory is allocated whole if it does not fit, and brought to the device in
    /// windows of two chunks: the one in use and the next. See
    /// [`Array::enter_chunk`](super::Array::enter_chunk).
    pub oversubscribe: bool,
}

impl Default for ArrayRequest {
    /// One `f64` on the device.
    fn default() -> Self {
        Self::new(Dtype::F64, [1, 1, 1])
    }
}

impl ArrayRequest {
    /// A request for device memory, with runs along the third axis.
    pub fn new(dtype: Dtype, shape: impl Into<Vec<u64>>) -> Self {
        Self {
            dtype,
            shape: shape.into(),
            memory: ArrayMemory::Device,
            chunk_axis_index: Some(2),
            unchunkable: false,
            total_runs: 1,
            oversubscribe: false,
        }
    }

    /// The same request for another kind of memory.
    #[must_use]
    pub fn memory(mut self, memory: ArrayMemory) -> Self {
        self.memory = memory;
        self
    }

    /// The same request with another run axis, or none.
    #[must_use]
    pub fn chunk_axis(mut self, index: impl Into<Option<usize>>) -> Self {
        self.chunk_axis_index = index.into();
        self
    }

    /// The same request, divisible or not.
    #[must_use]
    pub fn unchunkable(mut self, on: bool) -> Self {
        self.unchunkable = on;
        self
    }

    /// The same request with another number of runs.
    #[must_use]
    pub fn total_runs(mut self, runs: u64) -> Self {
        self.total_runs = runs;
        self
    }

    /// The same request, which may oversubscribe the device if the array does not fit.
    #[must_use]
    pub fn oversubscribe(mut self, on: bool) -> Self {
        self.oversubscribe = on;
        self
    }

    /// The bytes of the whole array; `None` if they do not fit into the number.
    #[must_use]
    pub fn bytes(&self) -> Option<u128> {
        // The array is empty, even if the product of its other lengths does not fit.
        if self.shape.contains(&0) {
            return Some(0);
        }
        let size = u128::from(self.dtype.size_bytes());
        self.shape.iter().try_fold(size, |bytes, &length| bytes.checked_mul(length.into()))
    }

    /// Whether the array is divided if memory is short: it is in device memory, may be divided, and
    /// has a run axis of more than one run.
    #[must_use]
    pub fn is_chunkable(&self) -> bool {
        self.memory.is_on_device() && self.runs().is_some_and(|runs| runs > 1)
    }

    /// The length along the run axis, if there is one and the array may be divided.
    #[must_use]
    pub fn runs(&self) -> Option<u64> {
        let axis = self.chunk_axis_index.filter(|_| !self.unchunkable)?;
        self.shape.get(axis).copied().filter(|_| !self.shape.contains(&0))
    }

    /// The shape of a chunk with this number of runs.
    #[must_use]
    pub fn chunked_shape(&self, chunk_length: u64) -> Vec<u64> {
        let mut shape = self.shape.clone();
        if let Some(axis) = self.chunk_axis_index.filter(|_| self.is_chunkable()) {
            shape[axis] = chunk_length.min(shape[axis]);
        }
        shape
    }

    /// Refuses a request that contradicts itself.
    pub(crate) fn check(&self, label: &str) -> Result<()> {
        let refuse =
            |why: String| Err(ManagerError::InvalidRequest { label: label.to_owned(), why });
        if self.total_runs == 0 {
            return refuse("there is at least 1 run".to_owned());
        }
        // The limit leaves room to add up, copy and round the sizes of many arrays.
        if self.bytes().is_none_or(|bytes| bytes > 1 << 100) {
            return refuse("its size is beyond what any machine addresses".to_owned());
        }
        if self.oversubscribe && self.memory != ArrayMemory::Managed {
            return refuse("only managed memory can be more than the device has".to_owned());
        }
        let Some(length) = self.runs().filter(|_| self.is_chunkable()) else { return Ok(()) };
        if self.total_runs > 1 && length != self.total_runs {
            return refuse(format!(
                "it has {length} along the run axis, but {} runs: give it that length, or mark it \
                 as unchunkable",
                self.total_runs
            ));
        }
        let before = self.chunk_axis_index.map_or(&[][..], |axis| &self.shape[..axis]);
        if self.oversubscribe && before.iter().any(|&length| length != 1) {
            return refuse("a window is one piece of memory: let the run axis be the first".into());
        }
        Ok(())
    }
}
