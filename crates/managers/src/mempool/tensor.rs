//! Tensors: a name, a layout and an address, over storage of a pool or of other code.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pagewise::refuse::invalid;
use pagewise::{DevicePtr, Machine, ManagedBuffer, Result, Span};

use super::layout::TensorLayout;

/// Bytes that a pool gave, given back with the last tensor over them.
#[derive(Debug)]
pub(super) struct TensorStorage {
    pub(super) name: Arc<str>,
    pub(super) buffer: ManagedBuffer<u8>,
    /// The allocation of the driver that the bytes lie in, with others' bytes perhaps.
    pub(super) home: Span,
    pub(super) disposable: AtomicBool,
}

#[derive(Clone)]
pub(super) enum TensorMemory {
    Pool(Arc<TensorStorage>),
    Foreign(Machine),
}

/// A named view of memory. Clones and views share the storage, which goes with the last of them.
///
/// Contents are reached by the address, on a device or, in the caller's own `unsafe`, on the host:
/// a tensor itself never reads or writes them.
///
/// ```
/// use pagewise_managers::mempool::{TensorLayout, create_unified_mempool};
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let pool = create_unified_mempool(&machine)?;
/// let matrix = pool.tensor("matrix", TensorLayout::contiguous(&[4, 6], 4)?, &stream)?;
/// let column = matrix.view("column", 2, TensorLayout::strided(&[4], &[6], 4)?)?;
/// assert_eq!(column.span().ptr, matrix.span().ptr.offset(8));
/// drop(matrix);
/// assert_eq!(pool.counters().allocations.current, 1, "the view keeps the storage");
/// drop(column);
/// assert_eq!(pool.counters().allocations.current, 0);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    name: Arc<str>,
    ptr: DevicePtr,
    layout: TensorLayout,
    pub(super) memory: TensorMemory,
}

impl Tensor {
    pub(super) fn of(
        name: &str,
        ptr: DevicePtr,
        layout: TensorLayout,
        memory: TensorMemory,
    ) -> Self {
        Self { name: name.into(), ptr, layout, memory }
    }

    /// A tensor in memory that other code allocated, managed or not. It is not freed here, and
    /// whether it is managed is asked when something is done to it.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for a null address with elements, or a range that passes the
    /// end of the address space.
    ///
    /// ```
    /// use pagewise_managers::mempool::{Tensor, TensorLayout, prefetch_managed_tensor};
    /// use pagewise::{BackendExt, DevicePtr, Machine, Place, Stream};
    ///
    /// let sim = pagewise::sim()?;
    /// let machine = Machine::from(&sim);
    /// let stream = Stream::legacy_default(&machine);
    /// let layout = TensorLayout::contiguous(&[1024], 4)?;
    /// let span = sim.alloc(4096)?;
    /// let theirs = Tensor::foreign("theirs", &machine, span.ptr, layout.clone())?;
    /// assert_eq!(prefetch_managed_tensor(&theirs, Place::HOST, &stream)?.unique_bytes, 4096);
    /// let wild = Tensor::foreign("wild", &machine, DevicePtr(4096), layout)?;
    /// let error = prefetch_managed_tensor(&wild, Place::HOST, &stream).unwrap_err();
    /// assert!(error.to_string().contains("wild"));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn foreign(
        name: &str,
        machine: impl Into<Machine>,
        ptr: DevicePtr,
        layout: TensorLayout,
    ) -> Result<Self> {
        const OPERATION: &str = "foreign tensor";
        let span = Span::new(ptr, layout.span_bytes());
        if span.bytes > 0 && ptr.is_null() {
            return Err(invalid(OPERATION, format!("`{name}` has elements at the null address")));
        }
        if span.end().is_none() {
            let why = format!("`{name}` passes the end of the address space");
            return Err(invalid(OPERATION, why).with_span(span));
        }
        Ok(Self::of(name, ptr, layout, TensorMemory::Foreign(machine.into())))
    }

    /// A view of the same storage, `first` elements of the view's size on from this one's first.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) if it would pass the end of the storage.
    ///
    /// ```
    /// # use pagewise_managers::mempool::{TensorLayout, create_unified_mempool};
    /// # use pagewise::{Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let pool = create_unified_mempool(&machine)?;
    /// let layout = TensorLayout::contiguous(&[8], 4)?;
    /// let all = pool.tensor("all", layout.clone(), &Stream::legacy_default(&machine))?;
    /// assert!(all.view("beyond", 1, layout).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn view(&self, name: &str, first: u64, layout: TensorLayout) -> Result<Self> {
        const OPERATION: &str = "view";
        let ptr = first
            .checked_mul(layout.element_bytes())
            .and_then(|offset| self.ptr.0.checked_add(offset))
            .map(DevicePtr);
        let fits = |&ptr: &DevicePtr| {
            let end = Span::new(ptr, layout.span_bytes()).end();
            match &self.memory {
                TensorMemory::Pool(storage) => end.is_some() && end <= storage.buffer.span().end(),
                TensorMemory::Foreign(_) => end.is_some(),
            }
        };
        let Some(ptr) = ptr.filter(fits) else {
            let why = format!("`{name}` passes the end of the storage of `{}`", self.name);
            return Err(invalid(OPERATION, why).with_span(self.span()));
        };
        Ok(Self::of(name, ptr, layout, self.memory.clone()))
    }

    /// Its name in errors and reports, unless a module gives it a longer one.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shape, strides, element size.
    #[must_use]
    pub fn layout(&self) -> &TensorLayout {
        &self.layout
    }

    /// The bytes from its first element to the end of its last, by address. It is valid in the
    /// order of the stream that the storage was made on, while a tensor over it lives.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.ptr, self.layout.span_bytes())
    }

    /// Whether it is storage of a pool of this crate, which is managed by construction.
    #[must_use]
    pub fn is_of_a_pool(&self) -> bool {
        matches!(self.memory, TensorMemory::Pool(_))
    }

    /// The machine that the memory is of.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        match &self.memory {
            TensorMemory::Pool(storage) => storage.buffer.machine(),
            TensorMemory::Foreign(machine) => machine,
        }
    }

    /// Whether the contents of its storage may be lost when its pool is suspended, which then moves
    /// nothing of it. Tensors over the same storage share the answer; at first it is no.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for memory that is not a pool's.
    ///
    /// # Safety
    /// While it is set, no code may use or move the storage, on the host or on a device, from the
    /// beginning of a [`suspend`](super::UnifiedMempool::suspend) until its stream has reached it,
    /// but by a [`resume`](super::UnifiedMempool::resume); and no code may read it after that until
    /// it was written.
    ///
    /// ```
    /// # use pagewise_managers::mempool::{TensorLayout, create_unified_mempool};
    /// # use pagewise::{Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let pool = create_unified_mempool(&machine)?;
    /// let layout = TensorLayout::contiguous(&[8], 4)?;
    /// let scratch = pool.tensor("scratch", layout, &Stream::legacy_default(&machine))?;
    /// // SAFETY: the contents of a disposable tensor may be lost; the program writes this one
    /// // before it reads it.
    /// unsafe { scratch.set_disposable(true)? };
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub unsafe fn set_disposable(&self, disposable: bool) -> Result<()> {
        match &self.memory {
            TensorMemory::Pool(storage) => {
                storage.disposable.store(disposable, Ordering::Relaxed);
                Ok(())
            }
            TensorMemory::Foreign(_) => {
                let why =
                    format!("`{}` is no memory of a pool, which alone is suspended", self.name);
                Err(invalid("set_disposable", why))
            }
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}, {:?}, {})", self.name, self.layout.shape(), self.span())
    }
}
