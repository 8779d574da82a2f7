//! Launches of kernels as values, which run now or later.

use pagewise_hal::{DeviceId, LaunchShape};

use crate::programs::tables::Function;

/// The request of a launch, beside its kernel and parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) shape: LaunchShape,
    pub(crate) is_cooperative: bool,
    pub(crate) cluster: Option<[u32; 3]>,
}

/// A launch that passed its checks.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) device: DeviceId,
    pub(crate) function: Function,
    /// The module that has the kernel, in the context of the launch.
    pub(crate) module: usize,
    pub(crate) request: Request,
    /// The bytes of all parameters, each at its offset.
    pub(crate) parameters: Vec<u8>,
}
