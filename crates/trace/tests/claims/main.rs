//! Claims about recordings and their replay, by topic.
//!
//! They are one program: a program for each topic takes longer to link than to run.

mod common;
mod limits;
mod program;
mod reach;
mod reader;
mod recorder;
mod replay;
mod round_trip;
mod shared;
mod time_limit;
