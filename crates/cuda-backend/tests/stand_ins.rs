//! Libraries that are not a usable driver, as a C compiler makes them.
#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::Command;

use pagewise_cuda::{CudaBackend, LoadError, probe_library};
use pagewise_hal::{DriverVersion, ErrorKind};
use tempfile::TempDir;

/// The toolkit's stub: every function is there and fails.
const STUB: &str = "
int cuDriverGetVersion(int *version) { return 34; }
int cuInit(unsigned flags) { return 34; }
int cuGetProcAddress_v2(const char *name, void **function, int version,
                        unsigned long long flags, int *status) { return 34; }
";

/// A driver from before versions could be asked for.
const OLD: &str = "int cuDriverGetVersion(int *version) { *version = 11020; return 0; }";

/// A driver that says 12.0 and cannot be asked for functions.
const MUTE: &str = "int cuDriverGetVersion(int *version) { *version = 12000; return 0; }";

/// A driver that finds nothing.
const EMPTY: &str = "
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetProcAddress_v2(const char *name, void **function, int version,
                        unsigned long long flags, int *status) {
    *function = 0;
    *status = 1;
    return 0;
}
";

/// A driver that does not answer.
const BROKEN: &str = "int cuDriverGetVersion(int *version) { return 999; }";

struct StandIn {
    library: PathBuf,
    _folder: TempDir,
}

fn stand_in(source: &str) -> StandIn {
    let folder = TempDir::new().expect("a temporary folder");
    let text = folder.path().join("driver.c");
    std::fs::write(&text, source).expect("room for a file");
    let library = folder.path().join("libcuda.so.1");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-w", "-o"]).arg(&library).arg(&text);
    assert!(cc.status().expect("a C compiler, as linking Rust needs").success());
    StandIn { library, _folder: folder }
}

fn refusal(source: &str) -> LoadError {
    let stand_in = stand_in(source);
    let refused = probe_library(&stand_in.library).expect_err("no driver");
    let error = CudaBackend::builder().library(&stand_in.library).open().expect_err("no driver");
    assert_eq!(error, refused.clone().into(), "opening and probing say the same");
    refused
}

#[test]
fn the_toolkits_stub_is_told_apart() {
    let LoadError::Stub { library } = refusal(STUB) else { panic!("not seen as a stub") };
    assert!(library.ends_with("libcuda.so.1"));
}

#[test]
fn a_driver_from_before_12_0_is_too_old_whatever_it_lacks() {
    let (found, needed) = (DriverVersion(11020), DriverVersion::CUDA_12_0);
    assert_eq!(refusal(OLD), LoadError::TooOld { found, needed });
}

#[test]
fn a_driver_without_the_lookup_is_incomplete() {
    let names = vec!["cuGetProcAddress_v2".to_owned()];
    let version = DriverVersion::CUDA_12_0;
    assert_eq!(refusal(MUTE), LoadError::MissingEntryPoints { version, names });
}

#[test]
fn a_driver_that_finds_nothing_is_described_and_not_opened() {
    let stand_in = stand_in(EMPTY);
    let probe = probe_library(&stand_in.library).expect("a driver that answers");
    assert!(probe.entry_points.iter().all(|entry| !entry.present));
    let Err(LoadError::MissingEntryPoints { names, .. }) = probe.devices else {
        panic!("{:?}", probe.devices);
    };
    assert_eq!(names.len(), probe.entry_points.iter().filter(|entry| entry.required).count());
    let error = CudaBackend::builder().library(&stand_in.library).open().expect_err("incomplete");
    assert_eq!(error.kind(), ErrorKind::LibraryMissing);
}

#[test]
fn a_driver_that_does_not_answer_is_refused_with_its_number() {
    let operation = "cuDriverGetVersion";
    assert_eq!(refusal(BROKEN), LoadError::Refused { operation, code: 999 });
}
