//! Claims about the simulator, by topic.
//!
//! They are one program: a program for each topic takes longer to link than to run.

#[cfg(all(not(miri), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod adjacent_accesses;
mod between;
mod code;
mod common;
mod contents;
mod copies;
mod frees;
mod hostile;
mod kernels;
mod literature;
mod managed_changes;
mod oversubscription;
mod pool_memory;
mod pools;
mod profiles;
mod programs;
mod published;
mod reads_beside;
mod recorded_launches;
mod records;
mod stability;
mod virtual_memory;
