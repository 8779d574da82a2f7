//! Operations on one tensor, and on all of a module.

use pagewise::{MemoryAdvice, Place, Result, Stream};

use super::module::Module;
use super::plan::{Item, ModuleOptions, Plan, Purpose, Report};
use super::tensor::Tensor;

/// The tensors of a module that an operation takes, with their full names.
fn items_of(module: &Module, options: &ModuleOptions) -> Vec<Item> {
    let item = |(name, tensor)| Item::tensor(name, tensor);
    let mut items: Vec<Item> = module.named_parameters().map(item).collect();
    if options.include_buffers {
        items.extend(module.named_buffers().map(item));
    }
    items
}

fn one(tensor: &Tensor) -> Vec<Item> {
    vec![Item::tensor(tensor.name().to_owned(), tensor)]
}

fn prefetch(
    operation: &'static str,
    items: Vec<Item>,
    device: Place,
    options: &ModuleOptions,
    stream: &Stream,
) -> Result<Report> {
    stream.machine().check_place(operation, device)?;
    let plan = Plan::of(operation, items, Purpose::AdviceOrPrefetch, options)?;
    plan.prefetch(device, stream)?;
    Ok(plan.report)
}

fn advise(
    operation: &'static str,
    items: Vec<Item>,
    advice: MemoryAdvice,
    options: &ModuleOptions,
) -> Result<Report> {
    let plan = Plan::of(operation, items, Purpose::AdviceOrPrefetch, options)?;
    plan.advise(advice)?;
    Ok(plan.report)
}

/// Asks for migration of a tensor, in stream order: all bytes from its first element to the end of
/// its last. No tensor, or one without elements, is nothing to do.
///
/// # Errors
/// Without a CUDA code, before anything is done: `InvalidValue` if the memory is not managed or the
/// tensor passes the end of its allocation, or for a stream of another machine; `InvalidDevice`.
/// From the driver, as [`Region::prefetch`](pagewise::Region::prefetch). All name the tensor.
///
/// ```
/// use pagewise_managers::mempool::{TensorLayout, create_unified_mempool, device_index};
/// use pagewise_managers::mempool::prefetch_managed_tensor;
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let pool = create_unified_mempool(&machine)?;
/// let tensor = pool.tensor("kv", TensorLayout::contiguous(&[3000], 4)?, &stream)?;
/// let report = prefetch_managed_tensor(&tensor, Device::FIRST, &stream)?;
/// assert_eq!((report.requested_bytes, report.page_bytes), (12_000, 12_288));
/// prefetch_managed_tensor(&tensor, device_index(-1)?, &stream)?;
/// assert_eq!(prefetch_managed_tensor(None, Device::FIRST, &stream)?.tensors, 0);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn prefetch_managed_tensor<'t>(
    tensor: impl Into<Option<&'t Tensor>>,
    device: impl Into<Place>,
    stream: &Stream,
) -> Result<Report> {
    const OPERATION: &str = "prefetch_managed_tensor";
    let Some(tensor) = tensor.into() else { return Ok(Report::default()) };
    prefetch(OPERATION, one(tensor), device.into(), &ModuleOptions::default(), stream)
}

/// Gives advice on a tensor.
///
/// # Errors
/// As [`prefetch_managed_tensor`], and as [`Region::advise`](pagewise::Region::advise).
///
/// ```
/// use pagewise_managers::mempool::{TensorLayout, advise_managed_tensor, create_unified_mempool};
/// use pagewise::{Machine, MemoryAdvice, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let pool = create_unified_mempool(&machine)?;
/// let layout = TensorLayout::contiguous(&[8], 4)?;
/// let tensor = pool.tensor("table", layout, &Stream::legacy_default(&machine))?;
/// advise_managed_tensor(&tensor, MemoryAdvice::SetReadMostly)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn advise_managed_tensor<'t>(
    tensor: impl Into<Option<&'t Tensor>>,
    advice: MemoryAdvice,
) -> Result<Report> {
    const OPERATION: &str = "advise_managed_tensor";
    let Some(tensor) = tensor.into() else { return Ok(Report::default()) };
    advise(OPERATION, one(tensor), advice, &ModuleOptions::default())
}

/// Says where faults are to leave pages of a tensor if they can.
///
/// # Errors
/// As [`advise_managed_tensor`].
///
/// ```
/// use pagewise_managers::mempool::{TensorLayout, create_unified_mempool};
/// use pagewise_managers::mempool::advise_managed_tensor_preferred_location;
/// use pagewise::{Machine, Place, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let pool = create_unified_mempool(&machine)?;
/// let layout = TensorLayout::contiguous(&[8], 4)?;
/// let tensor = pool.tensor("cold", layout, &Stream::legacy_default(&machine))?;
/// advise_managed_tensor_preferred_location(&tensor, Place::HOST)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn advise_managed_tensor_preferred_location<'t>(
    tensor: impl Into<Option<&'t Tensor>>,
    device: impl Into<Place>,
) -> Result<Report> {
    advise_managed_tensor(tensor, MemoryAdvice::SetPreferredLocation(device.into()))
}

/// Keeps a tensor mapped by a device, or by the host, wherever its pages are.
///
/// # Errors
/// As [`advise_managed_tensor`].
///
/// ```
/// use pagewise_managers::mempool::{TensorLayout, create_unified_mempool, device_index};
/// use pagewise_managers::mempool::advise_managed_tensor_accessed_by;
/// use pagewise::{Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let pool = create_unified_mempool(&machine)?;
/// let layout = TensorLayout::contiguous(&[8], 4)?;
/// let tensor = pool.tensor("shared", layout, &Stream::legacy_default(&machine))?;
/// advise_managed_tensor_accessed_by(&tensor, device_index(-1)?)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn advise_managed_tensor_accessed_by<'t>(
    tensor: impl Into<Option<&'t Tensor>>,
    device: impl Into<Place>,
) -> Result<Report> {
    advise_managed_tensor(tensor, MemoryAdvice::SetAccessedBy(device.into()))
}

/// Asks for migration of all parameters of a module, in stream order and, where the driver has it,
/// in one call. Storage that several share moves once; the report counts all three kinds of bytes.
///
/// | back end | calls |
/// | --- | --- |
/// | CUDA 13.0 and later | one, with one range for each run of neighbours |
/// | CUDA 12, or the legacy default stream | one for each such range |
///
/// # Errors
/// Before anything is done, as [`prefetch_managed_tensor`], with the name of the parameter. If the
/// driver fails midway in a loop, the error says which ranges were submitted and which parameter has
/// the failing one.
///
/// ```
/// use pagewise_managers::mempool::{Module, ModuleOptions, TensorLayout, create_unified_mempool};
/// use pagewise_managers::mempool::prefetch_managed_module_parameters;
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let pool = create_unified_mempool(&machine)?;
/// let mut module = Module::new();
/// let weight = pool.tensor("weight", TensorLayout::contiguous(&[1000], 4)?, &stream)?;
/// module.add_parameter("tied", weight.clone())?;
/// module.add_parameter("weight", weight)?;
/// let options = ModuleOptions::default();
/// let report =
///     prefetch_managed_module_parameters(&module, Device::FIRST, &options, &stream)?;
/// assert_eq!((report.requested_bytes, report.unique_bytes, report.ranges), (8000, 4000, 1));
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn prefetch_managed_module_parameters<'m>(
    module: impl Into<Option<&'m Module>>,
    device: impl Into<Place>,
    options: &ModuleOptions,
    stream: &Stream,
) -> Result<Report> {
    const OPERATION: &str = "prefetch_managed_module_parameters";
    let Some(module) = module.into() else { return Ok(Report::default()) };
    prefetch(OPERATION, items_of(module, options), device.into(), options, stream)
}

/// Gives advice on all parameters of a module.
///
/// # Errors
/// As [`prefetch_managed_module_parameters`]; advice is given range by range on every driver.
///
/// ```
/// use pagewise_managers::mempool::{Module, ModuleOptions, advise_managed_module_parameters};
/// use pagewise::MemoryAdvice;
///
/// let options = ModuleOptions::default();
/// let report =
///     advise_managed_module_parameters(&Module::new(), MemoryAdvice::SetReadMostly, &options)?;
/// assert_eq!(report.ranges, 0);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn advise_managed_module_parameters<'m>(
    module: impl Into<Option<&'m Module>>,
    advice: MemoryAdvice,
    options: &ModuleOptions,
) -> Result<Report> {
    const OPERATION: &str = "advise_managed_module_parameters";
    let Some(module) = module.into() else { return Ok(Report::default()) };
    advise(OPERATION, items_of(module, options), advice, options)
}

/// Says where faults are to leave pages of a module's parameters if they can.
///
/// # Errors
/// As [`advise_managed_module_parameters`].
///
/// ```
/// use pagewise_managers::mempool::{Module, ModuleOptions};
/// use pagewise_managers::mempool::advise_managed_module_parameters_preferred_location;
/// use pagewise::Place;
///
/// let (module, options) = (Module::new(), ModuleOptions::default());
/// advise_managed_module_parameters_preferred_location(&module, Place::HOST, &options)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn advise_managed_module_parameters_preferred_location<'m>(
    module: impl Into<Option<&'m Module>>,
    device: impl Into<Place>,
    options: &ModuleOptions,
) -> Result<Report> {
    let advice = MemoryAdvice::SetPreferredLocation(device.into());
    advise_managed_module_parameters(module, advice, options)
}

/// Keeps a module's parameters mapped by a device, or by the host, wherever their pages are.
///
/// # Errors
/// As [`advise_managed_module_parameters`].
///
/// ```
/// use pagewise_managers::mempool::{Module, ModuleOptions};
/// use pagewise_managers::mempool::advise_managed_module_parameters_accessed_by;
/// use pagewise::Device;
///
/// let (module, options) = (Module::new(), ModuleOptions::default());
/// advise_managed_module_parameters_accessed_by(&module, Device::FIRST, &options)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn advise_managed_module_parameters_accessed_by<'m>(
    module: impl Into<Option<&'m Module>>,
    device: impl Into<Place>,
    options: &ModuleOptions,
) -> Result<Report> {
    advise_managed_module_parameters(module, MemoryAdvice::SetAccessedBy(device.into()), options)
}

/// Declares the contents of a module's parameters worthless, in stream order, such as before a
/// refit overwrites them all. With a place, the pages then go there without being copied.
///
/// Only whole pages within the parameters take part: what they share with neighbours stays as it
/// is, and where it is.
///
/// # Errors
/// As [`prefetch_managed_module_parameters`] and [`discard`](pagewise::discard).
///
/// # Safety
/// No other code or work may read, write or move the parameters, or views of their storage, until
/// the stream has come to this; after that they are to be written before they are read.
///
/// ```
/// use pagewise_managers::mempool::{Module, ModuleOptions, TensorLayout, create_unified_mempool};
/// use pagewise_managers::mempool::discard_managed_module_parameters;
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let pool = create_unified_mempool(&machine)?;
/// let mut module = Module::new();
/// let layout = TensorLayout::contiguous(&[8 << 20], 4)?;
/// module.add_parameter("weight", pool.tensor("weight", layout, &stream)?)?;
/// let to = Some(Device::FIRST.into());
/// // SAFETY: no code reads the parameters until they are written.
/// let report = unsafe {
///     discard_managed_module_parameters(&module, to, &ModuleOptions::default(), &stream)?
/// };
/// assert_eq!(report.page_bytes, 32 << 20);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub unsafe fn discard_managed_module_parameters<'m>(
    module: impl Into<Option<&'m Module>>,
    then_to: Option<Place>,
    options: &ModuleOptions,
    stream: &Stream,
) -> Result<Report> {
    const OPERATION: &str = "discard_managed_module_parameters";
    let Some(module) = module.into() else { return Ok(Report::default()) };
    let plan = Plan::of(OPERATION, items_of(module, options), Purpose::Discard, options)?;
    // SAFETY: the plan asks that no code reads the parameters until they are written again; the
    // caller of this function promised that.
    unsafe { plan.discard(then_to, stream)? };
    Ok(plan.report)
}
