//! Claims about the memory manager, by topic. Together they are the evidence of
//! docs/parity-manager.md.
#![cfg(feature = "sim")]

mod chunking;
mod groups;
mod pools;
