//! The guide: first steps, tests without a GPU, kernels, advice, copies, memory that grows, versions,
//! recordings, cudarc, pitfalls.
//!
//! Every program in the guide runs on the simulator whenever the documentation is tested.
//!
//! | chapter | read it |
//! | --- | --- |
//! | [`first_program`] | first |
//! | [`testing`] | to test code that uses managed memory |
//! | [`kernels`] | to launch kernels of PTX, with or without a GPU |
//! | [`advice`] | to choose advice by what it does |
//! | [`copies`] | to copy between kinds of memory, and to fill |
//! | `host_faults` (feature `sim`) | to test code with raw pointers to managed memory |
//! | [`growing`] | if memory has to grow while it is in use |
//! | [`versions`] | if drivers of CUDA 12 matter |
//! | `recording` (feature `record`) | to record a program and replay it elsewhere |
//! | `cudarc` (feature `cudarc`) | to launch kernels on managed memory |
//! | [`pitfalls`] | before the first long night |

#[doc = include_str!("first_program.md")]
pub mod first_program {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("kernels.md")]
pub mod kernels {}

#[doc = include_str!("advice.md")]
pub mod advice {}

#[doc = include_str!("copies.md")]
pub mod copies {}

#[cfg(feature = "sim")]
#[doc = include_str!("host_faults.md")]
pub mod host_faults {}

#[doc = include_str!("growing.md")]
pub mod growing {}

#[doc = include_str!("versions.md")]
pub mod versions {}

#[cfg(feature = "record")]
#[doc = include_str!("recording.md")]
pub mod recording {}

#[cfg(feature = "cudarc")]
#[doc = include_str!("cudarc.md")]
pub mod cudarc {}

#[doc = include_str!("pitfalls.md")]
pub mod pitfalls {}
