//! The loader path of a program: a folder in which the simulated driver has the names of NVIDIA's
//! libraries.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The variable with the simulated driver's options.
pub(super) const OPTIONS: &str = "PAGEWISE_DRIVER";

/// The variable that names the simulated driver's library.
const LIBRARY: &str = "PAGEWISE_DRIVER_LIBRARY";

/// The library's file, as `cargo build -p pagewise-driver` makes it.
const FILE: &str = "libpagewise_driver.so";

/// Other libraries that programs look for, by the files that cargo makes of them. They lie beside
/// the driver's if they were built.
const OTHERS: [(&str, &str); 3] = [
    ("libpagewise_cudart_12.so", "libcudart.so.12"),
    ("libpagewise_cudart_13.so", "libcudart.so.13"),
    ("libpagewise_nvml.so", "libnvidia-ml.so.1"),
];

/// The variable in which the dynamic loader looks for libraries first.
const LOADER_PATH: &str = "LD_LIBRARY_PATH";

/// The variable in which `pagewise-cuda` looks for its driver.
const DRIVER_OF_PAGEWISE: &str = "PAGEWISE_LIBCUDA";

/// The extension of a process's journal.
pub(super) const JOURNAL: &str = "journal";

/// Folders beside this command's own in which an installation may have the library.
const BESIDE: [&str; 4] = ["", "deps", "../lib", "../lib/pagewise"];

/// A folder with the simulated driver under the names that programs look for.
#[derive(Debug)]
pub(super) struct Loader {
    library: PathBuf,
    folder: TempDir,
}

impl Loader {
    /// Finds the library and makes the folder.
    ///
    /// # Errors
    /// If there is no library, or no folder can be made; the text says what to do.
    pub(super) fn new() -> Result<Self, String> {
        let library = library()?;
        let folder =
            tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let link = |file: &Path, name| {
            symlink(file, folder.path().join(name))
                .map_err(|error| format!("{}: {error}", folder.path().display()))
        };
        for (file, name) in links(&library) {
            link(&file, name)?;
        }
        Ok(Self { library, folder })
    }

    /// The folder, in which processes also leave their summaries.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Lets a program find the simulated driver, with these options, and leave a summary and, if it
    /// is `traced`, a journal.
    pub(super) fn prepare(&self, command: &mut Command, options: &str, traced: bool) {
        let mut path = OsString::from(self.folder());
        if let Some(before) = std::env::var_os(LOADER_PATH).filter(|before| !before.is_empty()) {
            path.push(":");
            path.push(before);
        }
        let folder = self.folder().display();
        let mut options = format!("{options} summary=\"{folder}\"");
        if traced {
            options.push_str(&format!(" journal=\"{folder}/%p.{JOURNAL}\""));
        }
        command
            .env(LOADER_PATH, path)
            .env(DRIVER_OF_PAGEWISE, &self.library)
            .env(OPTIONS, options.trim_start());
    }
}

/// Files that go on the loader's path, and their names there.
fn links(library: &Path) -> Vec<(PathBuf, &'static str)> {
    let driver = ["libcuda.so.1", "libcuda.so"].map(|name| (library.to_path_buf(), name));
    let others = OTHERS.map(|(file, name)| (library.with_file_name(file), name));
    driver.into_iter().chain(others.into_iter().filter(|(file, _)| file.is_file())).collect()
}

fn library() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(LIBRARY) {
        let path = PathBuf::from(path);
        return match path.canonicalize() {
            Ok(path) if path.is_file() => Ok(path),
            _ => Err(format!("{LIBRARY}={}: there is no such file", path.display())),
        };
    }
    let command = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(|error| format!("this command's own path: {error}"))?;
    let own = command.parent().unwrap_or(Path::new("/"));
    let candidates = BESIDE.map(|beside| own.join(beside).join(FILE));
    let found = candidates.iter().find_map(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        format!(
            "the simulated driver {FILE} is not beside this command ({}): build it in a checkout \
             with `cargo build --release -p pagewise-driver`, and copy it there or name it in \
             {LIBRARY}",
            own.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_beside_the_driver_are_on_the_loaders_path_if_they_were_built() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join(FILE);
        let names = || links(&library).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(), ["libcuda.so.1", "libcuda.so"]);
        let runtime = folder.path().join("libpagewise_cudart_13.so");
        std::fs::write(&runtime, "").expect("room for a file");
        assert_eq!(names(), ["libcuda.so.1", "libcuda.so", "libcudart.so.13"]);
        assert!(links(&library).contains(&(runtime, "libcudart.so.13")));
    }
}
