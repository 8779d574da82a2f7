//! Functions that have the parameters of a driver's function and call it: `data/forwards.tsv`.
//!
//! Unless a function's own documentation says otherwise, a call makes a context current first, and
//! returns what the driver returns.

use crate::contexts::with_context;
use crate::driver::cu;

include!(concat!(env!("OUT_DIR"), "/forwards.rs"));
