//! Unified memory pools for frameworks: tensors and modules in managed memory.
//!
//! A [`UnifiedMempool`] gives storage for [`Tensor`]s, over the machine's managed memory or any
//! [resource](pagewise::resource) of it. Tensors, and [`Module`]s of them, are prefetched and advised
//! as a whole: shared storage once, strided views by the bytes that they reach, neighbours joined
//! before the driver is called, everything checked before it is asked to change anything.
//!
//! | you want | look at |
//! | --- | --- |
//! | a pool | [`create_unified_mempool`], [`UnifiedMempool::over`] |
//! | one tensor | [`prefetch_managed_tensor`], [`advise_managed_tensor_preferred_location`], [`advise_managed_tensor_accessed_by`], [`advise_managed_tensor`] |
//! | a module | [`prefetch_managed_module_parameters`], [`advise_managed_module_parameters_preferred_location`], [`advise_managed_module_parameters_accessed_by`], [`advise_managed_module_parameters`], [`discard_managed_module_parameters`] |
//! | the GPU's memory for something else for a while | [`UnifiedMempool::suspend`], [`UnifiedMempool::resume`] |
//! | what ranges come to | [`RangeFootprint`] |
//! | an allocator behind five C functions | [`ManagedAllocator`] |
//!
//! ```
//! use pagewise_managers::mempool::{Module, ModuleOptions, TensorLayout, create_unified_mempool};
//! use pagewise_managers::mempool::{advise_managed_module_parameters_preferred_location, device_index};
//! use pagewise_managers::mempool::prefetch_managed_module_parameters;
//! use pagewise::{Device, Machine, Stream};
//!
//! let machine = Machine::from(pagewise::sim()?);
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let pool = create_unified_mempool(&machine)?;
//! let mut model = Module::new();
//! for name in ["embedding", "projection", "head"] {
//!     let layout = TensorLayout::contiguous(&[512, 512], 2)?;
//!     model.add_parameter(name, pool.tensor(name, layout, &stream)?)?;
//! }
//! let options = ModuleOptions::default();
//! let host = device_index(-1)?;
//! advise_managed_module_parameters_preferred_location(&model, host, &options)?;
//! let report = prefetch_managed_module_parameters(&model, host, &options, &stream)?;
//! assert_eq!((report.tensors, report.ranges), (3, 1), "three neighbours, one range");
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! # Units and limits
//! Sizes are bytes, shapes and strides elements. Nothing here reads or writes contents, compiles
//! anything, knows a current device or current stream, or reads the environment.
//!
//! # Source
//! Behaviour of Megatron-LM's unified memory module, row by row in `docs/parity-mempool.md`.

mod allocator;
mod footprint;
mod layout;
mod module;
mod operations;
mod plan;
mod pool;
mod support;
mod tensor;

use pagewise::refuse::invalid;
use pagewise::{Device, Place, Result};

pub use allocator::{LastError, ManagedAllocator, error_number};
pub use footprint::RangeFootprint;
pub use layout::TensorLayout;
pub use module::Module;
pub use operations::{
    advise_managed_module_parameters, advise_managed_module_parameters_accessed_by,
    advise_managed_module_parameters_preferred_location, advise_managed_tensor,
    advise_managed_tensor_accessed_by, advise_managed_tensor_preferred_location,
    discard_managed_module_parameters, prefetch_managed_module_parameters, prefetch_managed_tensor,
};
pub use plan::{ModuleOptions, Report, Unmanaged};
pub use pool::{MempoolOptions, Suspension, UnifiedMempool, create_unified_mempool};
pub use support::{
    ALLOCATOR_VARIABLES, check_allocator_configuration, expandable_segments,
    is_unified_memory_unsupported,
};
pub use tensor::Tensor;

/// The place that frameworks name by a device index: -1 is the host, everywhere.
///
/// # Errors
/// `InvalidValue` (no CUDA code) below -1 and above what the driver can name. Whether a device
/// exists is asked by each call.
///
/// ```
/// use pagewise_managers::mempool::device_index;
/// use pagewise::{Device, Place};
///
/// assert_eq!(device_index(-1)?, Place::HOST);
/// assert_eq!(device_index(0)?, Device::FIRST.into());
/// assert!(device_index(-2).is_err());
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn device_index(index: i64) -> Result<Place> {
    match index {
        -1 => Ok(Place::HOST),
        0.. => {
            let ordinal = u32::try_from(index).unwrap_or(u32::MAX);
            Device::new(ordinal).map(Place::Device)
        }
        _ => Err(invalid("device index", format!("{index}: -1 is the host, 0 the first device"))),
    }
}
