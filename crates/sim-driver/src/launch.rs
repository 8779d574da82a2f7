//! Launches of kernels: their checks, and the seam to what executes them.
//!
//! A launch that passes its checks is a value, which is run now or later. The touch kernels of
//! `pagewise-cuda` run as access programs, and all others as the PTX that they are.

use std::ffi::c_int;

use pagewise_hal::{Code, DeviceId, LaunchShape, StreamHandle};

use crate::deferring::KernelRest;
use crate::driver::{Driver, Outcome};
pub(crate) use crate::kernel_launch::{Launch, Request};
use crate::occupancy;
use crate::programs::device::{limits, multiprocessor};
use crate::programs::tables::Function;

/// `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`
const COOPERATIVE_LAUNCH_TOO_LARGE: c_int = 720;
/// `CUDA_ERROR_INVALID_CLUSTER_SIZE`
pub(crate) const INVALID_CLUSTER_SIZE: c_int = 912;

/// The most blocks of a cluster on every device that has clusters.
pub(crate) const CLUSTER_PORTABLE: u32 = 8;
/// The most blocks of a cluster on an H200, if the kernel allows more than is portable.
pub(crate) const CLUSTER_MAX: u32 = 16;

/// A kernel of which nothing has run. It gives its rest, if it waits for memory to change.
pub(crate) type Ready = Box<dyn FnOnce(&Driver) -> Outcome<Option<KernelRest>> + Send>;

/// Executes kernels.
pub(crate) trait Executor {
    /// Checks a launch that is made ready later: it is refused for the reasons for which
    /// [`ready`](Self::ready) refuses it now.
    fn check(&self, driver: &Driver, launch: &Launch, on: StreamHandle) -> Outcome;

    /// Makes a launch ready, which runs in the order of its stream.
    fn ready(&self, driver: &Driver, launch: &Launch, on: StreamHandle) -> Outcome<Ready>;
}

/// How many there are of what three dimensions measure.
fn product(of: [u32; 3]) -> u64 {
    of.iter().fold(1, |all, one| all.saturating_mul(u64::from(*one)))
}

/// Checks a launch as an H200 does, apart from its parameters.
pub(crate) fn check(
    driver: &Driver,
    device: DeviceId,
    function: &Function,
    request: &Request,
) -> Outcome {
    let (kernel, limits) = (function.kernel()?, limits(driver, device)?);
    let LaunchShape { grid, block, shared_bytes } = request.shape;
    let within = |of: [u32; 3], most: [u32; 3]| {
        of.iter().zip(most).all(|(one, most)| (1..=most).contains(one))
    };
    let threads = product(block);
    let most = kernel.threads_max().unwrap_or(limits.block_threads).min(limits.block_threads);
    let fits = within(grid, limits.grid)
        && within(block, limits.block)
        && threads <= u64::from(most)
        && kernel.required_block.is_none_or(|required| required == block)
        && u64::from(shared_bytes) <= function.settings.dynamic_shared(kernel);
    if !fits {
        return Err(Code::INVALID_VALUE);
    }
    check_cluster(driver, device, function, request)?;
    if request.is_cooperative {
        let multiprocessor = multiprocessor(driver, device)?;
        let (threads, shared) = (threads as u32, u64::from(shared_bytes));
        let blocks = occupancy::active_blocks(function, &limits, &multiprocessor, threads, shared)?;
        if product(grid) > u64::from(blocks).saturating_mul(u64::from(multiprocessor.count)) {
            return Err(COOPERATIVE_LAUNCH_TOO_LARGE);
        }
    }
    Ok(())
}

/// The cluster of a launch: its own, or else the function's.
pub(crate) fn cluster_of(function: &Function, request: &Request) -> Outcome<Option<[u32; 3]>> {
    let kernel = function.kernel()?;
    Ok(request.cluster.or(function.settings.cluster(kernel)))
}

/// Checks the cluster of a launch: the grid must hold a whole number of them, and a kernel that
/// declares its cluster has no other.
pub(crate) fn check_cluster(
    driver: &Driver,
    device: DeviceId,
    function: &Function,
    request: &Request,
) -> Outcome {
    let (kernel, limits) = (function.kernel()?, limits(driver, device)?);
    let Some(cluster) = cluster_of(function, request)? else {
        return if kernel.needs_cluster { Err(INVALID_CLUSTER_SIZE) } else { Ok(()) };
    };
    let most = if function.settings.is_non_portable { CLUSTER_MAX } else { CLUSTER_PORTABLE };
    let is_whole = |(grid, cluster): (&u32, &u32)| *cluster > 0 && grid.is_multiple_of(*cluster);
    let fits = limits.has_clusters
        && kernel.required_cluster.is_none_or(|required| required == cluster)
        && kernel.most_in_cluster.is_none_or(|most| product(cluster) <= u64::from(most))
        && request.shape.grid.iter().zip(&cluster).all(is_whole)
        && product(cluster) <= u64::from(most);
    if fits { Ok(()) } else { Err(INVALID_CLUSTER_SIZE) }
}
