//! The choice of the back end that a program runs on.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
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

impl BackendKind {
    /// The back ends that are compiled in: features `cuda` and `sim`.
    pub const COMPILED_IN: &'static [Self] = &[
        #[cfg(feature = "cuda")]
        Self::Cuda,
        #[cfg(feature = "sim")]
        Self::Sim,
    ];

    /// The name, `cuda` or `sim`: of the feature, and in `PAGEWISE_BACKEND`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Sim => "sim",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Case does not matter, nor do blanks around the name.
impl FromStr for BackendKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let kinds = [Self::Cuda, Self::Sim];
        let named = kinds.into_iter().find(|kind| name.trim().eq_ignore_ascii_case(kind.name()));
        named.ok_or_else(|| refuse(format!("{name:?} is no back end: it is \"sim\" or \"cuda\"")))
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

    /// Opens a back end: the one that the program chose; else the one that the environment chooses,
    /// an empty variable being none; else the only one that is compiled in; else the driver. It
    /// never opens the simulator because there is no driver.
    ///
    /// [`Machine::backend_kind`](crate::Machine::backend_kind) says which one it is. With the
    /// feature `tracing` an event says it too, of level `INFO`.
    ///
    /// # Errors
    /// `InvalidValue` if the environment names no back end; `Unsupported` if the back end is not
    /// compiled in; `LibraryMissing` if the driver is not there.
    pub fn open(&self) -> Result<Arc<dyn Backend>> {
        let kind = choose(self.kind, env::var_os(Self::VARIABLE), BackendKind::COMPILED_IN)?;
        let backend = match kind {
            BackendKind::Sim => self.open_sim(),
            BackendKind::Cuda => open_cuda(),
        }?;
        #[cfg(feature = "tracing")]
        tracing::info!(backend = kind.name(), "opened");
        Ok(backend)
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

/// The back end to open, by what the program chose, the variable's value, and what is compiled in.
fn choose(
    program: Option<BackendKind>,
    variable: Option<OsString>,
    compiled_in: &[BackendKind],
) -> Result<BackendKind> {
    if let Some(kind) = program {
        return Ok(kind);
    }
    let value = variable.as_deref().map(OsStr::to_string_lossy).unwrap_or_default();
    if !value.trim().is_empty() {
        return value.parse().map_err(|_| {
            let variable = Builder::VARIABLE;
            refuse(format!("{variable}={value:?} names no back end: set it to sim or cuda"))
        });
    }
    match compiled_in {
        [] => Err(absent("no back end is compiled in: enable the feature `sim` or `cuda`")),
        [only] => Ok(*only),
        _ => Ok(BackendKind::Cuda),
    }
}

/// Opens the back end that the environment chooses, else the only one that is compiled in, else the
/// driver.
///
/// # Errors
/// As [`Builder::open`].
pub fn open() -> Result<Arc<dyn Backend>> {
    Builder::new().open()
}

#[cfg(feature = "cuda")]
fn open_cuda() -> Result<Arc<dyn Backend>> {
    match pagewise_cuda::CudaBackend::open() {
        Ok(driver) => Ok(Arc::new(driver)),
        Err(error) if error.kind() == ErrorKind::LibraryMissing => {
            let detail = format!("{}; {WITHOUT_A_DRIVER}", error.detail());
            Err(error.with_detail(detail))
        }
        Err(error) => Err(error),
    }
}

/// The two ways out for a program that finds no driver.
#[cfg(all(feature = "cuda", feature = "sim"))]
const WITHOUT_A_DRIVER: &str =
    "install NVIDIA's driver, or run on the simulator with PAGEWISE_BACKEND=sim";
#[cfg(all(feature = "cuda", not(feature = "sim")))]
const WITHOUT_A_DRIVER: &str = "install NVIDIA's driver, or enable the feature `sim` and run on \
                                the simulator with PAGEWISE_BACKEND=sim";

#[cfg(not(feature = "cuda"))]
fn open_cuda() -> Result<Arc<dyn Backend>> {
    Err(absent(
        "the driver is not compiled in: enable the feature `cuda`, or choose the simulator with \
         PAGEWISE_BACKEND=sim",
    ))
}

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
    fn a_name_is_taken_whatever_its_case_and_the_blanks_around_it() {
        for (text, kind) in [("sim", BackendKind::Sim), (" CUDA\n", BackendKind::Cuda)] {
            assert_eq!(text.parse(), Ok(kind));
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn the_program_chooses_before_the_variable_and_the_variable_before_the_features() {
        use BackendKind::{Cuda, Sim};
        let chosen = |program, variable: Option<&str>, compiled_in: &[BackendKind]| {
            choose(program, variable.map(OsString::from), compiled_in)
        };
        for compiled_in in [&[][..], &[Sim], &[Cuda], &[Cuda, Sim]] {
            for kind in [Cuda, Sim] {
                let other = if kind == Cuda { "sim" } else { "cuda" };
                assert_eq!(chosen(Some(kind), Some(other), compiled_in), Ok(kind));
                assert_eq!(chosen(None, Some(kind.name()), compiled_in), Ok(kind));
            }
        }
        for unset in [None, Some(""), Some("  ")] {
            assert_eq!(chosen(None, unset, &[Sim]), Ok(Sim));
            assert_eq!(chosen(None, unset, &[Cuda]), Ok(Cuda));
            assert_eq!(chosen(None, unset, &[Cuda, Sim]), Ok(Cuda), "never silently simulated");
            let error = chosen(None, unset, &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.detail().contains("the feature `sim` or `cuda`"), "{error}");
        }
    }

    #[test]
    fn a_wrong_value_of_the_variable_is_refused_with_its_name_and_the_values() {
        let error = choose(None, Some("gpu".into()), BackendKind::COMPILED_IN).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        let said = "PAGEWISE_BACKEND=\"gpu\" names no back end: set it to sim or cuda";
        assert_eq!(error.detail(), said);
    }

    /// On a machine with a driver there is nothing to see.
    #[test]
    #[cfg(all(feature = "cuda", feature = "sim"))]
    fn without_a_driver_the_error_names_both_ways_out() {
        let Err(error) = open_cuda() else { return };
        if error.kind() == ErrorKind::LibraryMissing {
            let detail = error.detail();
            assert!(detail.contains("install NVIDIA's driver"), "{error}");
            assert!(detail.contains("PAGEWISE_BACKEND=sim"), "{error}");
        }
    }

    #[test]
    fn asking_for_the_driver_never_gives_the_simulator() {
        let error = Builder::new().backend(BackendKind::Cuda).open().unwrap_err();
        let kinds = [ErrorKind::Unsupported, ErrorKind::LibraryMissing, ErrorKind::Driver];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}
