//! Recording: programs carried out on a back end, and programs observed while they run.
//!
//! | what | how |
//! | --- | --- |
//! | a program of operations | [`record_case`] carries one out and observes it, [`record_within`] in limited time; [`merge`] makes one recording of several runs |
//! | any user of a back end | [`Recorder`], a [`Backend`](pagewise_hal::Backend) around a back end, notes each call, for a case or in a file |
//! | a user that may crash | [`Recorder::to_journal`]; [`recover`] makes the recording of the journal |
//!
//! Both write what [`crate::reader`] reads and [`crate::replay`] carries out again.

mod calls;
mod copies;
mod file;
mod ids;
mod journal;
mod launches;
mod log;
mod merge;
mod pass;
mod recorder;
mod undeclared;

pub use file::Written;
pub use journal::recover;
pub use merge::{Differ, merge};
pub use pass::{Pass, record_case, record_within};
pub use recorder::Recorder;
