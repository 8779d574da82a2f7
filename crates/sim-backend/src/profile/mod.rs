//! Models of GPUs, as data.
//!
//! A profile is a document (TOML) that holds every figure in which one model of GPU differs from
//! another, and for each where it comes from. Nothing in the simulator asks for a profile's name.
//!
//! | module | concept |
//! | --- | --- |
//! | `gpu` | the document |
//! | `attributes` | what the driver reports of the device |
//! | `reported` | the same as the driver of a version answers it |
//! | `sources` | where figures come from |
//! | `error` | why a profile cannot be used |
//! | `check` | what values make sense |
//! | `texts` | the documents that ship with the crate, as text |
//! | `document` | reading: partial documents over a base, unknown keys |
//! | `shipped` | the profiles that ship with the crate |

mod attributes;
mod check;
mod document;
mod error;
mod gpu;
mod reported;
mod shipped;
mod sources;
mod texts;

pub use attributes::DeviceAttributes;
pub use error::ProfileError;
pub use gpu::GpuProfile;
pub use sources::{Evidence, Source, Sources};

#[cfg(test)]
mod microtraces;
#[cfg(test)]
mod tests;
