//! The conditions under which there is a unified pool.

use pagewise::refuse::unsupported;
use pagewise::{DeviceAttribute, DeviceId, Error, ErrorKind, Machine, Result};

/// The environment variables that configure PyTorch's caching allocator: the older name, and the
/// one that replaces it. PyTorch reads both.
pub const ALLOCATOR_VARIABLES: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// Whether such a configuration turns expandable segments on: `expandable_segments:true` among its
/// comma-separated settings, in any case; the last one counts, as in PyTorch.
///
/// ```
/// use pagewise_managers::mempool::expandable_segments;
/// assert!(expandable_segments("max_split_size_mb:64, expandable_segments:True"));
/// assert!(!expandable_segments("expandable_segments:True,expandable_segments:False"));
/// assert!(!expandable_segments("my_expandable_segments:true"));
/// ```
#[must_use]
pub fn expandable_segments(configuration: &str) -> bool {
    let settings = configuration.split(',').filter_map(|setting| setting.split_once(':'));
    let mut values = settings.filter_map(|(name, value)| {
        name.trim().eq_ignore_ascii_case("expandable_segments").then_some(value.trim())
    });
    values.next_back().is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Refuses a configuration of PyTorch's allocator under which no pool with an allocator of its own
/// works. `variable` looks a name up, such as `|name| std::env::var(name).ok()`: this crate reads
/// no environment of its own accord.
///
/// # Errors
/// `Unsupported` (no CUDA code), with the variable and its value.
///
/// ```
/// use pagewise_managers::mempool::check_allocator_configuration;
/// let newer = |name: &str| {
///     (name == "PYTORCH_ALLOC_CONF").then(|| "expandable_segments:true".to_owned())
/// };
/// let error = check_allocator_configuration(newer).unwrap_err();
/// assert!(error.to_string().contains("PYTORCH_ALLOC_CONF"));
/// assert!(check_allocator_configuration(|_| None).is_ok());
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn check_allocator_configuration(variable: impl Fn(&str) -> Option<String>) -> Result<()> {
    for name in ALLOCATOR_VARIABLES {
        if let Some(value) = variable(name).filter(|value| expandable_segments(value)) {
            let why = format!(
                "{name}={value}: expandable segments and pools with an allocator of their own \
                 exclude each other; set expandable_segments:false"
            );
            return Err(unsupported("create_unified_mempool", why));
        }
    }
    Ok(())
}

/// Whether an error says that there can be no unified pool here, so that the caller falls back to
/// ordinary memory; any other is a failure.
///
/// ```
/// use pagewise_managers::mempool::{create_unified_mempool, is_unified_memory_unsupported};
/// use pagewise::{SimBackend, SimConfig};
///
/// let no_gpu = std::sync::Arc::new(SimBackend::new(SimConfig::h200().devices(0))?);
/// let error = create_unified_mempool(no_gpu).unwrap_err();
/// assert!(is_unified_memory_unsupported(&error));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[must_use]
pub fn is_unified_memory_unsupported(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::LibraryMissing)
}

/// Some device must be there, and each must have managed memory.
pub(super) fn check_machine(machine: &Machine) -> Result<()> {
    const OPERATION: &str = "create_unified_mempool";
    let count = machine.device_count()?;
    if count == 0 {
        return Err(unsupported(OPERATION, "there is no device"));
    }
    for device in (0..count).map(|ordinal| DeviceId(ordinal.cast_signed())) {
        let attribute = DeviceAttribute::MANAGED_MEMORY;
        if machine.backend().device_attribute(device, attribute)? == 0 {
            let why = format!("device {} has no managed memory", device.0);
            return Err(unsupported(OPERATION, why));
        }
    }
    Ok(())
}
