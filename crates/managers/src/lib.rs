//! Managers of CUDA managed memory over [`pagewise`]. Each behaves as one that frameworks know, and
//! a table in `docs/` compares the two row by row.
//!
//! | module | feature | what it is | compared with |
//! | --- | --- | --- | --- |
//! | `mempool` | `unified-pool` | unified pools: tensors and modules are prefetched, advised and discarded as a whole; a pluggable allocator | Megatron-LM's unified memory, `docs/parity-mempool.md` |
//! | `emm` | `emm` | external memory managers: the memory of contexts behind one interface, deallocations that wait, a kit of rules | Numba's CUDA target, `docs/parity-emm.md` |
//! | `manager` | `instances` | one device's memory for many instances: shares, stream groups, chunks, eviction, windows | cubie's `MemoryManager`, `docs/parity-manager.md` |
//!
//! They use the public API of `pagewise` and nothing below it, so they work on every back end: a
//! [`Machine`](pagewise::Machine) says which. The program chooses the features of `pagewise`.
//!
//! ```
//! use pagewise::{Device, Machine, Place, Stream};
//! use pagewise_managers::mempool::{TensorLayout, create_unified_mempool};
//!
//! let machine = Machine::from(pagewise::sim()?);
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let pool = create_unified_mempool(&machine)?;
//! let weights = pool.tensor("weights", TensorLayout::contiguous(&[512, 512], 4)?, &stream)?;
//! pool.suspend(Place::HOST, &stream)?;
//! let back = pool.resume(Device::FIRST, &stream)?;
//! assert_eq!(back.page_bytes, weights.span().bytes);
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! # Features
//!
//! The three modules are on by default, because the crate is empty without any. The modules do not
//! use each other.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `emm` (default) | `emm` |
//! | `instances` (default) | `manager` |
//! | `unified-pool` (default) | `mempool` |
//! | `tracing` | an event of the `tracing` crate for each warning of `manager` |
//! | `serde` | `Serialize` and `Deserialize` on data types of `manager` |
#![deny(missing_docs)]

#[cfg(feature = "emm")]
pub mod emm;
#[cfg(feature = "instances")]
pub mod manager;
#[cfg(feature = "unified-pool")]
pub mod mempool;
#[cfg(any(feature = "emm", feature = "instances", feature = "unified-pool"))]
mod sync;
