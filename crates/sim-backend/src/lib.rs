//! A deterministic simulator of CUDA managed memory.
//!
//! [`SimBackend`] is a [`Backend`](pagewise_hal::Backend) without a GPU: it answers every call as
//! the driver of an H200 does, keeps contents in real memory, moves pages by the driver's policy,
//! and reports what it moved. What it answers is compared, call by call, with recordings of a real
//! H200; see the `pagewise-trace` crate.
//!
//! # How it is built
//!
//! Policy, mechanism and accounting are separate modules, and a call goes one way through them:
//!
//! | layer | modules |
//! | --- | --- |
//! | lock, errors | `backend` |
//! | time | `clock` |
//! | calls: checks in the driver's order, then effects | `allocation`, `movement`, `queries`, `touching` |
//! | what exists | `space` (over `regions`, `slabs`, `slots`), `pools` (over `chunks`, `pool_regions`), `streams`, `arena` |
//! | what attribute reads report | `attributes` (over `runs`) |
//! | which thread faults when, in kernels of many | [`arrival`] |
//! | where pages are and why they move | `paging` |
//! | how long that takes | [`cost`] |
//!
//! # Determinism
//!
//! The same calls in the same order give the same answers, events and times on every machine: no
//! wall clock, no hash order, and addresses count only by their distance from each other.
//!
//! # Profiles
//!
//! What distinguishes one GPU from another is a document, [`GpuProfile`]; the H200's is calibrated,
//! of the others each figure says where it comes from. All devices of a machine are of one profile.
//! Behaviour follows from the document, never from its name: without concurrent managed access
//! devices do not fault, over a coherent link host and device reach each other's memory.
//!
//! # Units
//!
//! Bytes, nanoseconds, pages of 4 KiB, va_blocks of 2 MiB.
#![deny(missing_docs)]

mod allocation;
mod arena;
pub mod arrival;
mod attachments;
mod attributes;
mod backend;
mod chunks;
mod clock;
mod config;
mod contents;
pub mod cost;
mod descriptor;
mod exclusive;
mod locate;
mod movement;
mod pager;
mod paging;
mod pool_regions;
mod pools;
mod profile;
mod queries;
mod records;
mod refusal;
mod regions;
mod runs;
mod sharing;
mod sim;
mod slabs;
mod slots;
mod space;
mod streams;
mod tempo;
mod touching;

pub use arrival::ArrivalParams;
pub use backend::SimBackend;
pub use config::{DiscardedContents, EventCapture, MemoryContents, RangeReads, SimConfig};
pub use cost::{CostObservation, CostParams};
pub use paging::{AccessCounterParams, LapseVote, PagingParams, ThrashingParams};
pub use profile::{
    DeviceAttributes, Evidence, GpuProfile, HostLink, PeerLink, ProfileError, Source, Sources,
};
