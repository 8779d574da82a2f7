//! Claims about external memory managers and memory pools, by topic.
//!
//! They are one program: a program for each topic takes longer to link than to run.

mod emm;
mod emm_conformance;
mod emm_contexts;
mod emm_ipc;
mod emm_pending;
mod emm_views;
mod examples;
mod mempool;
mod mempool_allocator;
#[cfg(feature = "unified-pool")]
mod mempool_common;
mod mempool_edges;
mod mempool_pool;
