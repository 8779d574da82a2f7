//! Recordings of CUDA managed memory: reading, writing, replaying on any back end, comparing.
//!
//! A *trace* is a file of cases, each a list of operations with what a real GPU answered: result
//! codes, attributes, page tables, unified-memory records and times. [`reader`] and [`writer`]
//! handle the files, [`replay`] carries a case out on a [`Backend`](pagewise_hal::Backend),
//! [`compare`] says where the two agree, [`run`] does all of this for many files in parallel, and
//! [`report`] is the result as data.
//!
//! ```
//! use pagewise_trace::reader::TraceReader;
//!
//! let text = concat!(
//!     r#"{"format":"pagewise-trace","version":1,"family":"tiny","#,
//!     r#""recorded_on":{"gpus":1,"cuda_driver_version":13000}}"#, "\n",
//!     r#"{"case":"one"}"#, "\n",
//!     r#"{"op":"alloc_managed","buf":0,"bytes":4096,"attach_flags":1,"code":0}"#, "\n",
//! );
//! let mut reader = TraceReader::new("tiny.jsonl", text.as_bytes())?;
//! assert_eq!(reader.header().family, "tiny");
//! let case = reader.next_case()?.expect("one case");
//! assert_eq!((case.name.as_str(), case.ops.len(), case.ops[0].line), ("one", 1, 3));
//! assert!(reader.next_case()?.is_none());
//! # Ok::<(), pagewise_trace::error::TraceError>(())
//! ```
//!
//! # What it does not do
//!
//! It knows no back end: the program that replays supplies a [`run::Target`]. It never prints.
//!
//! # Files from elsewhere
//!
//! What a file may ask for is limited, by default at a figure that no honest recording meets:
//! [`limits`].
#![deny(missing_docs)]
// Traces come from elsewhere: no number in them may overflow anything.
#![warn(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "tests choose their numbers"))]

#[cfg(feature = "program")]
pub mod campaign;
pub mod compare;
pub mod differential;
pub mod error;
pub mod format;
mod indeterminate;
pub mod limits;
pub mod output;
pub mod pace;
#[cfg(feature = "program")]
#[allow(clippy::arithmetic_side_effects, reason = "the generator bounds its own numbers")]
pub mod program;
pub mod reader;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod time_limit;
pub mod writer;
