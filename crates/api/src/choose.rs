//! The choice of the back end that a program runs on.

use std::env;
use std::str::FromStr;
use std::sync::Arc;

use pagewise_hal::{Backend, Error, ErrorKind, Result};

const OPERATION: &str = "open back end";

/// A back end by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// The CUDA driver.
    Cuda,
    /// The simulator.
    Sim,
}

impl FromStr for BackendKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "cuda" => Ok(Self::Cuda),
            "sim" => Ok(Self::Sim),
            other => Err(refuse(format!("{other:?} is no back end: it is \"sim\" or \"cuda\""))),
        }
    }
}

/// Opens a back end.
///
/// ```
/// use pagewise::{BackendKind, Builder};
///
/// let backend = Builder::new().backend(BackendKind::Sim).open()?;
/// assert_eq!(backend.capabilities().backend, "sim");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Builder {
    kind: Option<BackendKind>,
    #[cfg(feature = "sim")]
    sim: Option<crate::SimConfig>,
}

impl Builder {
    /// The environment variable that chooses the back end if the program does not.
    pub const VARIABLE: &'static str = "PAGEWISE_BACKEND";

    /// A builder without a choice.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses a back end, whatever the environment says.
    #[must_use]
    pub fn backend(mut self, kind: BackendKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// The machine to simulate, if the simulator is chosen; by default one H200.
    ///
    /// ```
    /// use pagewise::{BackendKind, Builder, SimConfig};
    ///
    /// let two = Builder::new().backend(BackendKind::Sim).sim_config(SimConfig::h200().devices(2));
    /// assert_eq!(two.open()?.device_count()?, 2);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn sim_config(mut self, config: crate::SimConfig) -> Self {
        self.sim = Some(config);
        self
    }

    /// Opens the back end that the program chose, else the one that the environment chooses, else
    /// the driver.
    ///
    /// # Errors
    /// `InvalidValue` if the environment names no back end; `Unsupported` if the back end is not
    /// compiled in; `LibraryMissing` if the driver is not there.
    pub fn open(&self) -> Result<Arc<dyn Backend>> {
        let kind = match (self.kind, env::var_os(Self::VARIABLE)) {
            (Some(kind), _) => kind,
            (None, Some(name)) => name.to_string_lossy().parse()?,
            (None, None) => BackendKind::Cuda,
        };
        match kind {
            BackendKind::Sim => self.open_sim(),
            BackendKind::Cuda => open_cuda(),
        }
    }

    #[cfg(feature = "sim")]
    fn open_sim(&self) -> Result<Arc<dyn Backend>> {
        let config = self.sim.clone().unwrap_or_else(crate::SimConfig::h200);
        Ok(Arc::new(crate::SimBackend::new(config)?))
    }

    #[cfg(not(feature = "sim"))]
    fn open_sim(&self) -> Result<Arc<dyn Backend>> {
        Err(absent("the simulator is not compiled in: enable the feature `sim`"))
    }
}

/// Opens the back end that the environment chooses; without a choice, the driver.
///
/// # Errors
/// As [`Builder::open`].
pub fn open() -> Result<Arc<dyn Backend>> {
    Builder::new().open()
}

#[cfg(feature = "cuda")]
fn open_cuda() -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(pagewise_cuda::CudaBackend::open()?))
}

#[cfg(not(feature = "cuda"))]
fn open_cuda() -> Result<Arc<dyn Backend>> {
    Err(absent(
        "the driver is not compiled in: enable the feature `cuda`, or choose the simulator with \
         PAGEWISE_BACKEND=sim",
    ))
}

#[cfg(not(all(feature = "sim", feature = "cuda")))]
fn absent(detail: &'static str) -> Error {
    Error::new(OPERATION, ErrorKind::Unsupported).with_detail(detail)
}

fn refuse(detail: String) -> Error {
    Error::new(OPERATION, ErrorKind::InvalidValue).with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_names_there_are() {
        let error = "gpu".parse::<BackendKind>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        assert!(error.to_string().contains("\"sim\" or \"cuda\""), "{error}");
    }

    #[test]
    fn asking_for_the_driver_never_gives_the_simulator() {
        let error = Builder::new().backend(BackendKind::Cuda).open().unwrap_err();
        let kinds = [ErrorKind::Unsupported, ErrorKind::LibraryMissing, ErrorKind::Driver];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}
