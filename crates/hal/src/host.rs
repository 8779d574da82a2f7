//! Host views: the host's way to reach memory by the addresses that a back end gives out.

use std::sync::Arc;

use crate::DevicePtr;

/// The host's way to reach managed and pinned memory by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum HostViews {
    /// The host cannot reach it: addresses are numbers, as a mock makes them up.
    #[default]
    Absent,
    /// The host reaches it as any memory, and the hardware sees each access.
    Direct,
    /// The host reaches it as any memory, but the back end sees only the accesses that
    /// [`host_touch`](crate::Backend::host_touch) declares.
    Declared,
    /// The host reaches it as any memory, and the back end sees each access to a page that the host
    /// has not mapped, by a genuine fault. Devices reach the same bytes at
    /// [`kernel_address`](HostAddresses::kernel_address).
    Faulting,
}

/// A promise of a back end: the addresses that it gives out are the host's.
///
/// The `pagewise` crate turns such addresses into references without further checks. The promise is
/// an `unsafe` trait and not a value, so that safe code can neither make it nor copy it from one
/// back end to another. Each back end, wrappers included, implements it for itself.
///
/// | back end | answer |
/// | --- | --- |
/// | driver | `Direct` |
/// | simulator | `Declared`, `Faulting` if it was asked for host faults |
/// | `MockBackend` | `Absent` |
/// | wrapper that passes addresses on as they came | what the inner back end answers |
/// | any other | `Absent` |
///
/// ```
/// use pagewise_hal::{DevicePtr, HostAddresses, HostViews};
///
/// #[derive(Debug)]
/// struct MadeUp;
///
/// // SAFETY: the trait asks that views of the back end's memory be sound; this back end offers
/// // none (`HostViews::Absent`).
/// unsafe impl HostAddresses for MadeUp {
///     fn host_views(&self) -> HostViews {
///         HostViews::Absent
///     }
///
///     fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
///         ptr
///     }
/// }
/// ```
///
/// # Safety
/// An implementation that returns `Absent` makes no promise. Any other promises, for as long as the
/// back end lives:
///
/// - it always answers the same;
/// - an address from `alloc_managed`, from `alloc_pinned`, or from `pool_alloc` of a pool that the
///   host can access, is the host's address of as many bytes as were asked for, which the host may
///   read and write until the allocation is freed;
/// - the same holds for addresses at which `memory_map` has put memory of the host, while
///   `memory_set_access` lets the host read and write it and no later mapping shows it;
/// - an address from [`kernel_address`](Self::kernel_address) has the same bytes as the one that it
///   was given, as far as their allocation goes, and can be used by the same rules;
/// - no two live allocations share a byte, and none has a byte of memory with another owner;
/// - no safe call changes the contents of live memory, except of memory with a discard or other
///   work in flight that an `unsafe` call asked for;
/// - with `Direct`, a handle from `stream_create` is a stream of the CUDA driver that gave the
///   addresses, on that device, and lives until `stream_destroy`; a handle that a call gets is used
///   in that call only;
/// - a file descriptor from `pool_export` is open, and the caller may close it.
pub unsafe trait HostAddresses {
    /// The host's way to reach the memory of this back end.
    fn host_views(&self) -> HostViews;

    /// The address at which a closure that stands for a kernel accesses live memory. It is the same
    /// address, except with [`HostViews::Faulting`]: there the closure's accesses are no host's and
    /// must not fault, so they go to a second view of the memory.
    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr;
}

// SAFETY: the `Arc` passes every call on to the back end that it holds, so the addresses are that
// back end's, which made this promise when it implemented the trait.
unsafe impl<B: HostAddresses + ?Sized> HostAddresses for Arc<B> {
    fn host_views(&self) -> HostViews {
        (**self).host_views()
    }

    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
        (**self).kernel_address(ptr)
    }
}

// SAFETY: the `Box` passes every call on to the back end that it holds, so the addresses are that
// back end's, which made this promise when it implemented the trait.
unsafe impl<B: HostAddresses + ?Sized> HostAddresses for Box<B> {
    fn host_views(&self) -> HostViews {
        (**self).host_views()
    }

    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
        (**self).kernel_address(ptr)
    }
}
