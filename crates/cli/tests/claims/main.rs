//! Claims about the command, by topic.
//!
//! They are one program: a program for each topic takes longer to link than to run.

mod calibrate;
mod common;
mod compare;
mod divergence;
mod doctor;
mod interrupted;
mod progress;
mod readme;
mod record;
mod recording;
mod replay;
#[cfg(target_os = "linux")]
mod run;
mod standard;
#[cfg(target_os = "linux")]
mod sweep;
mod usage;
mod verdict;
