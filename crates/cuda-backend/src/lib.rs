//! The CUDA driver, found at run time.
//!
//! [`probe`] opens `libcuda.so.1`, asks for its version and which of the versioned entry points of
//! managed memory it has, and counts devices. Nothing is linked and nothing panics: a missing
//! library, an old one, and one without a device are different [errors](pagewise_hal::Error), each
//! saying what to do.
//!
//! A [`Backend`](pagewise_hal::Backend) over the driver is not part of this version.
//!
//! # Versions
//!
//! A signature belongs to a version, not to a name: the driver hands out different functions for
//! one name depending on the version asked for. So every entry point is asked for at the version
//! that introduced the signature meant, never at the driver's own.
#![deny(missing_docs)]

mod library;
mod probe;

pub use probe::{EntryPoint, Probe, probe, probe_library};
