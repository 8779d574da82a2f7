//! Claims about the memory manager, by topic. Together they are the evidence of
//! docs/parity-manager.md.
#![cfg(feature = "sim")]

mod chunking;
mod failures;
mod groups;
mod hosts;
mod lifetime;
mod pools;
mod queue;
mod threads;
mod windows;
