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
//! | the calls of the trait | `backend` |
//! | lock, errors | `machine`, over `locked` and `patient` |
//! | time | `clock` |
//! | calls: checks in the driver's order, then effects | `allocation`, `movement`, `queries`, `touching`, `touching_at_once`, `copies`, `kernels`, `device_code`, `attaching`, `concurrency`, `sharing`, `physical_sharing`, `ipc` |
//! | genuine faults of the host | `faulting` decides, over `host_view` and `host_faults` |
//! | kernels in PTX | `programs`, over `pagewise-ptx` and `device_code` |
//! | launches that repeat one before | `repeats` |
//! | what exists | `space` (over `regions`, `slabs`, `slots`), `pools` (over `pool_chunks`, `pool_regions`), `streams`, `arena`, `attachments`, `exclusive`, `shared` (over `exported_pool`, `imported_pool`, `shared_memory`) |
//! | what attribute reads report | `book`, over `attributes` (over `runs`) |
//! | reads beside a long call | `reads_beside`, over `lendable` |
//! | how long kernels take without faults | `kernel_time` |
//! | which thread faults when, in kernels of many | [`arrival`], over `places` |
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
// Numbers come from callers. A module that computes with numbers that were checked before says so.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[allow(
    clippy::arithmetic_side_effects,
    reason = "addresses and sizes of live allocations, which fit the address space and the device"
)]
mod allocation;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "`place` has found the range inside one segment; sizes are below a zone's"
)]
mod arena;
pub mod arrival;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "addresses and sizes of live allocations, which fit the address space and the device"
)]
mod attaching;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "addresses and sizes of live allocations, which fit the address space and the device"
)]
mod attachments;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "page numbers of live allocations; a bit for each of at most 33 processors"
)]
mod attributes;
mod backend;
mod between;
mod book;
mod clock;
mod code_place;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "sizes of live allocations, which fit the device"
)]
mod concurrency;
mod config;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "page numbers of live memory, and pages of one block of 512"
)]
mod contents;
#[allow(clippy::arithmetic_side_effects, reason = "page numbers of live memory")]
mod copies;
pub mod cost;
#[allow(clippy::arithmetic_side_effects, reason = "granules are not 0, and hold an address")]
mod device_code;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "sizes of live allocations, which fit the device, and counts of calls"
)]
mod exclusive;
#[allow(clippy::arithmetic_side_effects, reason = "addresses in one pool, and counted units")]
mod exported_pool;
mod fault_observer;
#[allow(clippy::arithmetic_side_effects, reason = "page numbers of live memory")]
mod faulting;
mod floor;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "addresses inside one zone; `has` and `About::read` bound what a file says"
)]
mod foreign;
#[allow(clippy::arithmetic_side_effects, reason = "addresses inside one zone")]
mod holes;
#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
    path = "host_faults/elsewhere.rs"
)]
#[allow(clippy::arithmetic_side_effects, reason = "addresses of a view, and counted records")]
mod host_faults;
#[allow(clippy::arithmetic_side_effects, reason = "page numbers of live memory")]
mod host_view;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "`PointerRecord::end` has found the record below 1 TiB; holders are counted"
)]
mod imported_pool;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "sizes of live allocations; `About::read` bounds what a file says"
)]
mod ipc;
mod journal;
mod kernel_time;
mod kernels;
mod lendable;
mod link;
mod locate;
mod locked;
mod machine;
mod managed_changes;
#[allow(clippy::arithmetic_side_effects, reason = "addresses of reservations")]
mod mappings;
#[allow(clippy::arithmetic_side_effects, reason = "an index into a list that is not empty")]
mod movement;
mod own_thread;
mod pace;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "page numbers of live memory, and counts of calls"
)]
mod pager;
mod paging;
mod patient;
mod peer_access;
mod physical_sharing;
mod places;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "offsets in a pool, below 2^43: longer allocations are refused first"
)]
mod pool_chunks;
mod pool_records;
#[allow(clippy::arithmetic_side_effects, reason = "addresses inside one zone")]
mod pool_regions;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "addresses and sizes in a pool's region; handles are counted"
)]
mod pools;
mod pressure;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "`within` has checked the bound; fields are counted"
)]
mod profile;
mod programs;
#[allow(clippy::arithmetic_side_effects, reason = "page numbers of live memory")]
mod queries;
mod reads_beside;
#[allow(clippy::arithmetic_side_effects, reason = "divisors are at least 1")]
mod recorded_code;
#[allow(clippy::arithmetic_side_effects, reason = "records are counted")]
mod records;
mod refusal;
#[allow(clippy::arithmetic_side_effects, reason = "units of 2 MiB inside one zone")]
mod regions;
mod repeats;
#[allow(clippy::arithmetic_side_effects, reason = "page numbers of live memory")]
mod runs;
mod shared;
#[cfg_attr(
    any(miri, not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))),
    path = "shared_memory/elsewhere.rs"
)]
mod shared_memory;
mod shared_words;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "rounding down does not overflow, and the page size is not 0"
)]
mod sharing;
mod sim;
#[allow(clippy::arithmetic_side_effects, reason = "offsets in one slab of 2 MiB")]
mod slabs;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "addresses inside one zone; a size that passes it is refused first"
)]
mod slots;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "addresses and sizes of live allocations, which fit the address space and the device"
)]
mod space;
mod state;
#[allow(clippy::arithmetic_side_effects, reason = "handles are counted")]
mod streams;
mod submission;
#[allow(clippy::arithmetic_side_effects, reason = "page numbers of live memory")]
mod touching;
mod touching_at_once;
#[allow(
    clippy::arithmetic_side_effects,
    reason = "steps and rounds are counted; lines of addresses that code accessed"
)]
mod tracer;
mod virtual_memory;

pub use arrival::ArrivalParams;
pub use backend::SimBackend;
pub use code_place::{CodePlace, DeviceWait};
pub use config::{
    DiscardedContents, EventCapture, HostFaultMechanism, HostFaultSupport, HostFaults,
    MemoryContents, RangeReads, SimConfig,
};
pub use cost::{CostObservation, CostParams};
pub use device_code::{CodeState, DeviceCode, DeviceMemory, DeviceWindow};
pub use fault_observer::{HostFault, PendingFault};
pub use host_faults::support as host_fault_support;
pub use kernel_time::KernelParams;
pub use link::{HostLink, PeerLink};
pub use managed_changes::{ManagedChanges, ManagedStep};
pub use own_thread::start_own_thread;
pub use paging::{AccessCounterParams, LapseVote, PagingParams, ThrashingParams};
pub use pressure::{Confidence, Pressure, Trust, Verdict};
pub use profile::{DeviceAttributes, Evidence, GpuProfile, ProfileError, Source, Sources};
pub use programs::{
    BegunKernel, GridLimits, KernelFault, KernelOutput, LoweredProgram, Program, ProgramError,
    ProgramKernel, ProgramLaunch, ProgramVariable, Progress,
};
pub use repeats::LaunchIdentity;
pub use submission::{Submission, Targets};
pub use tracer::TracedAccesses;
