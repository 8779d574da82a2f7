//! The paging engine: where pages are, which processors map them, and how each access, migration,
//! advice and discard changes that, as driver 580 does it on an H200.
//!
//! Units: pages of 4 KiB by absolute number (address / 4096), nanoseconds of virtual time. The
//! caller keeps the address space (which ranges exist), the contents, and the cost of things: the
//! engine reports records and [`Work`] to an [`ReportSink`], which says how long each step took.
//! Everything is deterministic; there is no I/O, no global state and no order by hash.
//!
//! | module | concept |
//! | --- | --- |
//! | `engine` | the state of an address space, and its calls |
//! | `mask`, `stored_mask`, `processor` | sets of pages, at rest, sets of processors and their relations |
//! | `access`, `protection`, `walk` | what processors do, what mappings allow, and accesses one after another |
//! | `block`, `state`, `presence` | a va_block, its pages, what one processor has of them |
//! | `range` | policy, and splits |
//! | `touch`, `batch` | accesses of one thread, and of many: which faults are serviced together |
//! | `executed` | accesses of code that the caller executes |
//! | `service` | the faults on one block: `residency`, `prefetcher` and `thrash` decide, `moves` and `mapping` act |
//! | `host_access` | what the host's page table allows, for a caller that enforces it |
//! | `changed_slots` | the blocks that changed, for those who ask |
//! | `groups` | pages that faults nearby do not bring along |
//! | `plain`, `node`, `repeat` | the same in few steps where nothing is special; for one page; for many blocks that are alike |
//! | `advice`, `migrate`, `discard` | calls |
//! | `counters`, `remote` | access counters, and what moves by them |
//! | `chunks`, `evict` | memory of devices, and who has to leave it |
//!
//! `PAGING-12` in a comment is rule 12 of `docs/driver/paging.md`, which names the recording and
//! the function of the published driver that show it. `CONTRACT-` and `TIMING-` rules stand
//! beside it.

mod access;
mod advice;
mod batch;
mod block;
mod blocks;
mod changed_slots;
mod chunks;
mod context;
mod counters;
mod discard;
mod engine;
mod evict;
mod executed;
mod groups;
mod host_access;
mod invariants;
#[cfg(test)]
mod laws;
mod mapping;
mod mask;
mod migrate;
mod missed;
mod moves;
mod node;
mod params;
mod plain;
mod prefetcher;
mod presence;
mod processor;
mod protection;
mod range;
mod remote;
mod repeat;
mod report;
mod residency;
mod service;
mod state;
mod stored_mask;
mod survey;
#[cfg(test)]
mod testing;
mod thrash;
mod totals;
mod touch;
mod turns;
mod walk;
mod walked;

pub(crate) use access::Access;
pub(crate) use batch::WalkReach;
pub(crate) use changed_slots::Asker;
pub(crate) use chunks::CHUNK_BYTES;
pub(crate) use discard::Discard;
pub(crate) use engine::{GpuMemory, Paging};
pub(crate) use executed::{ExecutedKernel, LaneWait, Missing};
pub(crate) use groups::Group;
pub(crate) use host_access::HostAccess;
pub(crate) use mask::PageMask;
pub use params::{AccessCounterParams, LapseVote, PagingParams, ThrashingParams};
pub(crate) use processor::Relations;
pub(crate) use report::{Advised, CopySums, Holding, ReportSink, Wants, Work, WorkCause};
pub(crate) use survey::{Covered, HeldBlocks};
pub(crate) use turns::TurnWalk;
pub(crate) use walk::Walk;
