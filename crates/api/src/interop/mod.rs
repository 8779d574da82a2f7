//! Memory shared with [cudarc](https://docs.rs/cudarc), safely.
//!
//! [`lend`] gives buffers, or parts of them, to cudarc for the time of a closure. The closure gets
//! cudarc's own types [`CudaView`](cudarc::driver::CudaView) and
//! [`CudaViewMut`](cudarc::driver::CudaViewMut), which launches, copies, fills, cuBLAS and the rest
//! of cudarc take. [`own`] goes the other way: managed memory of cudarc's becomes a
//! [`ManagedBuffer`](crate::ManagedBuffer). Streams go both ways: [`adopt_stream`],
//! [`cudarc_stream`]. The guide has a quick start, `cudarc`.
//!
//! Nothing here names a type of cudarc with a shape that depends on the version of CUDA that cudarc
//! was built for, so an application may choose any (`cuda-12000` and later).
//!
//! The functions of [`CudaBackend`](crate::CudaBackend) that are named in [`CudarcBuffer`] are the
//! `unsafe` way: without a closure, and without a wait.

mod adopted;
mod fence;
mod lend;
mod own;
mod streams;

pub(crate) use adopted::Adopted;
pub use lend::{Lend, lend};
pub use own::{CudarcMemory, own};
pub use pagewise_cuda::interop::CudarcBuffer;
pub use streams::{adopt_stream, cudarc_stream};
