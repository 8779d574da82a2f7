//! Shape, strides and element size of a tensor, and the bytes that its elements lie in.

use pagewise::Result;
use pagewise::refuse::invalid;

const OPERATION: &str = "tensor layout";

/// Shape, strides and element size of a tensor. Strides count elements.
///
/// The bytes that it needs run from its first element to the end of its last, which is more than
/// its elements take where there are gaps between them, and less where a stride of 0 repeats them.
///
/// ```
/// use pagewise_managers::mempool::TensorLayout;
///
/// let dense = TensorLayout::contiguous(&[3, 4], 2)?;
/// assert_eq!((dense.requested_bytes(), dense.span_bytes()), (24, 24));
/// let column = TensorLayout::strided(&[3, 1], &[4, 1], 2)?;
/// assert_eq!((column.requested_bytes(), column.span_bytes()), (6, 18));
/// let repeated = TensorLayout::strided(&[1000, 4], &[0, 1], 2)?;
/// assert_eq!((repeated.requested_bytes(), repeated.span_bytes()), (8000, 8));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorLayout {
    shape: Vec<u64>,
    strides: Vec<u64>,
    element_bytes: u64,
    elements: u64,
    span_bytes: u64,
}

impl TensorLayout {
    /// Elements one after another, the last dimension fastest. No dimensions are one element.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for elements of 0 bytes, or more bytes than an address space.
    ///
    /// ```
    /// use pagewise_managers::mempool::TensorLayout;
    /// assert_eq!(TensorLayout::contiguous(&[2, 3, 5], 4)?.strides(), [15, 5, 1]);
    /// assert!(TensorLayout::contiguous(&[u64::MAX, 2], 4).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn contiguous(shape: &[u64], element_bytes: u64) -> Result<Self> {
        let mut strides = vec![1_u64; shape.len()];
        let mut step = 1_u64;
        for (stride, &length) in strides.iter_mut().zip(shape).rev() {
            *stride = step;
            // Without elements no stride is ever taken, however long the other dimensions.
            step = step.checked_mul(length.max(1)).ok_or_else(too_long)?;
        }
        Self::of(shape.to_vec(), strides, element_bytes)
    }

    /// Elements that are `strides` elements apart; 0 repeats them.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for a negative stride, as many strides as are not dimensions,
    /// elements of 0 bytes, or more bytes than an address space.
    ///
    /// ```
    /// use pagewise_managers::mempool::TensorLayout;
    /// assert!(TensorLayout::strided(&[4], &[-1], 4).is_err());
    /// assert!(TensorLayout::strided(&[4, 4], &[1], 4).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn strided(shape: &[u64], strides: &[i64], element_bytes: u64) -> Result<Self> {
        if shape.len() != strides.len() {
            let why = format!("{} strides for {} dimensions", strides.len(), shape.len());
            return Err(invalid(OPERATION, why));
        }
        let forward = strides.iter().map(|&stride| {
            u64::try_from(stride).map_err(|_| {
                let why = format!("stride {stride}: give the view from its lowest address on");
                invalid(OPERATION, why)
            })
        });
        Self::of(shape.to_vec(), forward.collect::<Result<_>>()?, element_bytes)
    }

    fn of(shape: Vec<u64>, strides: Vec<u64>, element_bytes: u64) -> Result<Self> {
        if element_bytes == 0 {
            return Err(invalid(OPERATION, "elements of no size need no memory"));
        }
        let elements = match shape.contains(&0) {
            true => Some(0),
            false => shape.iter().try_fold(1_u64, |n, &length| n.checked_mul(length)),
        };
        let elements = elements.ok_or_else(too_long)?;
        let mut last = 0_u64;
        for (&length, &stride) in shape.iter().zip(&strides) {
            let reach = length.saturating_sub(1).checked_mul(stride);
            last = reach.and_then(|reach| last.checked_add(reach)).ok_or_else(too_long)?;
        }
        let spanned = last.checked_add(1).and_then(|count| count.checked_mul(element_bytes));
        let span_bytes = if elements == 0 { 0 } else { spanned.ok_or_else(too_long)? };
        elements.checked_mul(element_bytes).ok_or_else(too_long)?;
        Ok(Self { shape, strides, element_bytes, elements, span_bytes })
    }

    /// Elements of each dimension.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Elements from one to the next, of each dimension.
    #[must_use]
    pub fn strides(&self) -> &[u64] {
        &self.strides
    }

    /// Bytes of one element.
    #[must_use]
    pub fn element_bytes(&self) -> u64 {
        self.element_bytes
    }

    /// How many elements, repeated ones counted each time.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Elements times their size, which is what frameworks call the bytes of a tensor.
    #[must_use]
    pub fn requested_bytes(&self) -> u64 {
        self.elements * self.element_bytes
    }

    /// Bytes from the first element to the end of the last; 0 without elements.
    #[must_use]
    pub fn span_bytes(&self) -> u64 {
        self.span_bytes
    }
}

fn too_long() -> pagewise::Error {
    invalid(OPERATION, "more bytes than an address space has")
}
