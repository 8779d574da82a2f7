//! C programs run over `libcudart.so.13`, and over the archive for static linking.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

// The libraries are built because these tests depend on them.
use pagewise_cudart_13 as _;
use pagewise_driver as _;
use tempfile::TempDir;

/// A file that cargo built beside the tests.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let deps = test.parent().expect("a folder");
    let places = [deps.join(name), deps.with_file_name(name)];
    places.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{name} is not built"))
}

/// A folder in which the loader finds the libraries by NVIDIA's names.
fn libraries() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let link = |file, name| symlink(built(file), folder.path().join(name)).expect("a link");
    link("libpagewise_cudart_13.so", "libcudart.so.13");
    link("libpagewise_driver.so", "libcuda.so.1");
    folder
}

/// Compiles a program of `tests/c` with these arguments after it.
fn compiled_from(source: &str, folder: &Path, arguments: &[&OsStr]) -> PathBuf {
    let program = folder.join("program");
    let mut command = Command::new("cc");
    command.args(["-Wall", "-Werror", "-o"]).arg(&program).arg(format!("tests/c/{source}"));
    assert!(command.args(arguments).status().expect("a C compiler").success());
    program
}

/// Compiles `tests/c/program.c`, likewise.
fn compiled(folder: &Path, arguments: &[&OsStr]) -> PathBuf {
    compiled_from("program.c", folder, arguments)
}

/// Runs a program, and checks that it succeeds and says this. Gives what it writes to stderr.
fn says(program: &Path, folder: &Path, expected: &str) -> String {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder).env("PAGEWISE_DRIVER", "memory=1GiB log=off");
    let output = command.output().expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{errors}");
    assert!(output.status.success(), "{errors}");
    errors
}

/// Runs `tests/c/program.c`, and checks all that it says.
fn runs(program: &Path, folder: &Path) {
    let errors = says(program, folder, "all as expected\n");
    let refused = "cudaCreateSurfaceObject is not supported";
    assert_eq!(errors.matches(refused).count(), 1, "stderr names a function once: {errors}");
    assert!(!errors.contains("no version information"), "{errors}");
}

#[test]
fn a_program_that_links_the_shared_library_runs() {
    let folder = libraries();
    let library = folder.path().join("libcudart.so.13");
    let program = compiled(folder.path(), &[library.as_os_str()]);
    runs(&program, folder.path());
}

#[test]
fn a_program_that_links_the_archive_runs() {
    let folder = libraries();
    let archive = built("libpagewise_cudart_13.a");
    let system = ["-lpthread", "-ldl", "-lm", "-lrt"].map(OsStr::new);
    let arguments: Vec<&OsStr> = std::iter::once(archive.as_os_str()).chain(system).collect();
    let program = compiled(folder.path(), &arguments);
    runs(&program, folder.path());
}

#[test]
fn a_program_asks_for_symbols_with_the_librarys_version() {
    let folder = libraries();
    let library = folder.path().join("libcudart.so.13");
    let program = compiled(folder.path(), &[library.as_os_str()]);
    let bytes = std::fs::read(program).expect("the program");
    // Once as the library that is needed and as the version of its symbols: one text for both.
    let name = b"\0libcudart.so.13\0";
    assert!(bytes.windows(name.len()).any(|text| text == name));
    let library = std::fs::read(library).expect("the library");
    assert!(library.windows(name.len()).any(|text| text == name));
}

#[test]
fn memory_is_freed_by_functions_that_run_when_the_process_ends() {
    let folder = libraries();
    let library = folder.path().join("libcudart.so.13");
    let program = compiled_from("at_exit.c", folder.path(), &[library.as_os_str()]);
    says(&program, folder.path(), "0 failures\n");
}

#[test]
fn stderr_says_once_that_the_driver_is_too_old_for_the_ptx_of_a_compiler() {
    let folder = libraries();
    let driver = folder.path().join("libcuda.so.1");
    let program = compiled_from("newer_ptx.c", folder.path(), &[driver.as_os_str()]);
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder.path()).env("PAGEWISE_DRIVER", "memory=1GiB");
    let output = command.output().expect("the program runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "222 222\n");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.matches("Unsupported .version 99.9").count(), 1, "{errors}");
    assert!(
        errors.contains("a newer driver than CUDA 13.0, such as that of the compiler (`pagewise")
    );
    assert!(errors.contains("version="), "{errors}");
}

#[test]
fn without_a_driver_calls_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    symlink(built("libpagewise_cudart_13.so"), folder.path().join("libcudart.so.13"))
        .expect("a link");
    let library = folder.path().join("libcudart.so.13");
    let program = compiled(folder.path(), &[library.as_os_str()]);
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder.path());
    command.env("PAGEWISE_DRIVER_LIBRARY", "/nowhere/libcuda.so.1");
    let output = command.output().expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("cudaMalloc(&device"), "the first call fails: {errors}");
}
