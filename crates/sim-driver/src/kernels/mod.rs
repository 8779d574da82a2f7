//! Kernels in PTX: executed by the simulator over its memory.

mod instances;
mod load;
mod output;
mod run;

pub(crate) use instances::Instances;
pub(crate) use output::Output;
pub(crate) use run::PtxKernel;
