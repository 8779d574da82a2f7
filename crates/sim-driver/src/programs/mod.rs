//! Programs for devices: modules, libraries, and the functions and kernels in them.
//!
//! A module belongs to a context and goes with it. A library belongs to none: it becomes a module
//! in each context that uses it. Handles are numbers that the tables look up; none is an address.

pub(crate) mod device;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod settings;
pub(crate) mod storage;
pub(crate) mod tables;
pub(crate) mod variables;
