//! A manager of a device's memory for many instances: shares, stream groups, requests that are
//! allocated together, and division into chunks along a run axis where memory is short.
//!
//! It is modelled on the `MemoryManager` of cubie, and keeps its names; docs/parity-manager.md
//! compares them row by row. One manager is for one device. An *instance* registers, queues
//! requests for arrays, and one member of a *stream group* has them all allocated, on the group's
//! stream: either everything, or if it does not fit the same *chunks* of runs for all.
//!
//! ```
//! use pagewise_managers::manager::{ArrayRequest, ChunkPolicy, Dtype, LimitMode, ManagerOptions};
//! use pagewise_managers::manager::{MemoryManager, Registration};
//! use pagewise::{Device, Machine};
//!
//! let options = ManagerOptions::new()
//!     .total_bytes(64 << 20)
//!     .limit_mode(LimitMode::Active)
//!     .chunk_policy(ChunkPolicy::default().balanced(true));
//! let machine = Machine::from(pagewise::sim()?);
//! let manager = MemoryManager::with_options(&machine, Device::FIRST, options)?;
//! let solver = manager.register(Registration::new().proportion(0.5).stream_group("solver"))?;
//! let output = manager.register(Registration::new().stream_group("solver"))?;
//!
//! // 1000 runs of 100 kB and 20 kB: 120 MB for 64 MiB.
//! let state = ArrayRequest::new(Dtype::F64, [125, 100, 1000]).total_runs(1000);
//! let result = ArrayRequest::new(Dtype::F32, [1, 5000, 1000]).total_runs(1000);
//! manager.queue_request(solver, [("state", state)])?;
//! manager.queue_request(output, [("result", result)])?;
//! let allocated = manager.allocate_queue(solver)?;
//!
//! assert_eq!((allocated.parameters.chunks(), allocated.parameters.chunk_length()), (2, 500));
//! assert_eq!(allocated.responses[&output].arr["result"].shape(), [1, 5000, 500]);
//! # Ok::<(), pagewise_managers::manager::ManagerError>(())
//! ```
//!
//! # What holds
//!
//! - **A call that fails changes nothing**, with two exceptions where memory is short. Arrays that
//!   had to be freed before those that replace them could be allocated are gone, and the error
//!   names them ([`ManagerError::AfterFreeing`]); owners that were evicted are, and their hooks tell
//!   them. Requests stay queued until they are allocated.
//! - **Bytes are counted exactly**, in integers, with the allocator's rounding.
//! - **It may be called from several threads.** It has one lock, under which it also calls the back
//!   end, so that two groups never see the same free bytes. Hooks and destructors of what users
//!   gave are called without it, so they may call the manager. Memory resources and back ends may
//!   not.
//! - **Nothing is printed**: see [`Warning`].
//!
//! Work on a device is unknown to the manager unless it is in the order of the group's stream, or
//! announced by [`begin_submission`](MemoryManager::begin_submission).
//!
//! # Shortage
//!
//! | answer | how |
//! | --- | --- |
//! | chunks | arrays along the run axis hold one chunk; the default |
//! | eviction | idle owners with hooks, those that worked least recently first, lose their memory; within the share of who asks |
//! | windows | [`ArrayRequest::oversubscribe`]: managed memory holds everything, and the device two chunks at a time |
//! | host files | [`HostMemory::Memmap`], chosen for host arrays beyond a threshold |

mod array;
mod array_memory;
mod buffer_pool;
mod chunking;
mod error;
mod eviction;
mod freeing;
mod hooks;
mod host_array;
mod host_arrays;
mod instance;
mod instance_id;
mod memory_manager;
mod options;
mod pinned;
mod pinned_blocks;
mod plan;
mod proportions;
mod queue;
mod registry;
mod request;
mod response;
mod reuse;
mod shares;
mod spill;
mod spill_file;
mod stream_groups;
mod transfers;
mod update;
mod warning;
mod window;

pub use array::Array;
pub use array_memory::ArrayMemory;
pub use buffer_pool::{ChunkBuffer, ChunkBufferPool};
pub use chunking::{ChunkParameters, ChunkPolicy, RunArray, RunFootprint};
pub use error::{ManagerError, Result};
pub use host_array::{HostArray, HostMemory};
pub use instance::{InstanceMemorySettings, Registration};
pub use instance_id::InstanceId;
pub use memory_manager::MemoryManager;
pub use options::{Allocator, LimitMode, ManagerOptions, QueueScope};
pub use proportions::{MIN_AUTOPOOL_SIZE, Pools};
pub use queue::Allocated;
pub use request::{ArrayRequest, Dtype};
pub use response::ArrayResponse;
pub use spill::SpillLevel;
pub use stream_groups::{DEFAULT_GROUP, StreamGroups};
pub use update::InstanceUpdate;
pub use warning::Warning;
pub use window::Leaving;
