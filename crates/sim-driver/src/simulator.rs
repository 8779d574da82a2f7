//! The start of the simulator, with genuine faults of the host where it can have them.

use pagewise_hal::ErrorKind;
use pagewise_sim::{HostFaults, SimBackend, SimConfig};

/// Makes a simulator. If `falls_back` and this host has no genuine faults, it sees only declared
/// accesses of the host, and `warn` gets a line that says why.
///
/// # Errors
/// If there is no room for its memory, or no such machine.
pub(crate) fn open(
    config: SimConfig,
    falls_back: bool,
    warn: impl FnOnce(String),
) -> Result<SimBackend, String> {
    let declared = falls_back.then(|| config.clone().host_faults(HostFaults::Declared));
    let opened = match (SimBackend::new(config), declared) {
        (Err(error), Some(declared)) if error.kind() == ErrorKind::Unsupported => {
            warn(format!("the program's own accesses to managed memory are not seen: {error}"));
            SimBackend::new(declared)
        }
        (opened, _) => opened,
    };
    opened.map_err(|error| error.to_string())
}
