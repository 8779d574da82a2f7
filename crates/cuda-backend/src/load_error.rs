//! The reasons why there is no driver to work with, each with a remedy.

use pagewise_hal::{Code, DriverVersion, Error, ErrorKind};

/// The reason why the driver cannot be used.
///
/// Turns into a [`pagewise_hal::Error`], with the same text as its detail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library could not be opened.
    #[error(
        "{library} could not be opened ({reason}): install the NVIDIA driver, name its library in \
         PAGEWISE_LIBCUDA, or use the simulator"
    )]
    NoLibrary {
        /// File name or path.
        library: String,
        /// The dynamic loader's message.
        reason: String,
    },
    /// The library is not a CUDA driver.
    #[error("{library} is no CUDA driver: it has no {symbol}; name the driver's own library")]
    NotADriver {
        /// File name or path.
        library: String,
        /// The missing symbol.
        symbol: &'static str,
    },
    /// The library is the toolkit's stub, made for linking only.
    #[error(
        "{library} is the toolkit's stub library: put the driver's own library before the \
         toolkit's `stubs` folder in the search path"
    )]
    Stub {
        /// File name or path.
        library: String,
    },
    /// The driver is older than this crate can work with.
    #[error("the driver is of CUDA {found}; {needed} or later is needed: update the driver")]
    TooOld {
        /// The installed version.
        found: DriverVersion,
        /// The least that will do.
        needed: DriverVersion,
    },
    /// The driver lacks functions that its version should have.
    #[error(
        "the driver of CUDA {version} lacks {}: it is incomplete or not NVIDIA's; reinstall it",
        .names.join(", ")
    )]
    MissingEntryPoints {
        /// The driver's version.
        version: DriverVersion,
        /// Base names of the functions.
        names: Vec<String>,
    },
    /// The driver works but sees no device.
    #[error(
        "the driver is there but sees no GPU: check that one is installed, that its kernel module \
         is loaded, that /dev/nvidia* is visible here, and CUDA_VISIBLE_DEVICES"
    )]
    NoDevice,
    /// The caller's version ceiling is below what this crate can work with.
    #[error("the version ceiling is CUDA {ceiling}; choose 12.0 or later")]
    CeilingTooLow {
        /// The ceiling that was asked for.
        ceiling: DriverVersion,
    },
    /// The driver refused to start.
    #[error("the driver refused {operation}: {}", advice(*.code))]
    Refused {
        /// The function that failed.
        operation: &'static str,
        /// Its `CUresult`.
        code: i32,
    },
}

/// The remedy for a driver that does not start.
fn advice(code: i32) -> String {
    let known = match code {
        802 => "the system is not ready: on machines with NVSwitch, start the fabric manager",
        803 => "library and kernel module are of different versions: reboot, or reinstall one",
        804 => "the forward-compatibility library does not support this GPU: remove it",
        999 => "check that the nvidia-uvm module is loaded and /dev/nvidia-uvm is accessible",
        _ => "see the driver's log",
    };
    format!("CUresult {code}; {known}")
}

impl LoadError {
    /// The error of a `CUresult` that the driver gave before it was usable.
    pub(crate) fn of_code(library: &str, operation: &'static str, code: i32) -> Self {
        match code {
            34 => Self::Stub { library: library.to_owned() },
            100 => Self::NoDevice,
            code => Self::Refused { operation, code },
        }
    }

    /// The driver's number, where it gave one.
    fn code(&self) -> Option<i32> {
        match self {
            Self::Stub { .. } => Some(34),
            Self::NoDevice => Some(100),
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        const OPERATION: &str = "open CUDA driver";
        let bare = match (error.code(), &error) {
            (Some(code), _) if code != Code::SUCCESS => Self::from_code(OPERATION, code),
            (_, LoadError::CeilingTooLow { .. }) => Self::new(OPERATION, ErrorKind::InvalidValue),
            _ => Self::new(OPERATION, ErrorKind::LibraryMissing),
        };
        bare.with_detail(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_kind_the_drivers_number_and_says_what_to_do() {
        let version = DriverVersion::CUDA_12_0;
        let library = "libcuda.so.1".to_owned();
        let cases = [
            (
                LoadError::NoLibrary { library: library.clone(), reason: "no file".to_owned() },
                (ErrorKind::LibraryMissing, None),
                "install the NVIDIA driver",
            ),
            (
                LoadError::of_code(&library, "cuInit", 34),
                (ErrorKind::LibraryMissing, Some(34)),
                "stub",
            ),
            (
                LoadError::of_code(&library, "cuInit", 100),
                (ErrorKind::LibraryMissing, Some(100)),
                "kernel module",
            ),
            (
                LoadError::TooOld { found: DriverVersion(11080), needed: version },
                (ErrorKind::LibraryMissing, None),
                "11.8; 12.0 or later",
            ),
            (
                LoadError::MissingEntryPoints { version, names: vec!["cuMemFree".to_owned()] },
                (ErrorKind::LibraryMissing, None),
                "cuMemFree",
            ),
            (
                LoadError::CeilingTooLow { ceiling: DriverVersion(11080) },
                (ErrorKind::InvalidValue, None),
                "ceiling",
            ),
            (
                LoadError::of_code(&library, "cuInit", 999),
                (ErrorKind::Driver, Some(999)),
                "nvidia-uvm",
            ),
        ];
        for (case, expected, words) in cases {
            let error = Error::from(case);
            assert_eq!((error.kind(), error.code()), expected, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
