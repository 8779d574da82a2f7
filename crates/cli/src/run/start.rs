//! The statuses of a program that does not run.

use std::ffi::OsString;
use std::io;

use crate::status::Failure;

/// The status if the command itself fails, as of `env` and `timeout`.
pub(super) const OWN_FAILURE: u8 = 125;
/// The status if the program is there and cannot be started.
const CANNOT_START: u8 = 126;
/// The status if there is no such program.
const NOT_FOUND: u8 = 127;

/// The failure of a program that cannot be started.
pub(super) fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let status = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_START,
    };
    Failure::Started(status, format!("{}: {error}", program.display()))
}
