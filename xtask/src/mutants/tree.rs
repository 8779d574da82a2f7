//! The copy of the workspace that mutants are planted in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::list::{Mutant, Number};
use super::plant::plant;
use crate::command::{Outcome, cargo, output};

/// The copy.
pub(super) const TREE: &str = "target/mutants/tree";
/// The folder of what is built of the tree.
pub(super) const BUILD: &str = "target/mutants/build";
/// The module that says which mutant is chosen.
const SWITCH: &str = include_str!("switch.rs.in");
/// The first lines of a library with switches.
const HEAD: &str = "#![allow(warnings)]\n#![feature(const_eval_select, core_intrinsics)]\n";
/// The libraries that mutants are planted in. Their switch is a `const fn` that is answered at run
/// time, which takes a feature of the compiler that is not stable.
const LIBRARIES: &str = "pagewise,pagewise_cuda,pagewise_managers,pagewise_sim";

/// Copies the workspace: the files that git knows, and new ones that it does not ignore. Those
/// that `plant_all` writes stay as they are.
pub(super) fn copy(mutants: &[Mutant]) -> Outcome {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let list = output(Command::new("git").args(list))?;
    let mut kept = BTreeSet::new();
    for mutant in mutants {
        let folder = source_folder(&mutant.file).unwrap_or_default();
        kept.extend([PathBuf::from(&mutant.file), folder.join("lib.rs"), folder.join("mutant.rs")]);
    }
    for file in list.split('\0').filter(|file| !file.is_empty()) {
        if Path::new(file).is_symlink() && Path::new(file).is_dir() {
            kept.insert(PathBuf::from(file));
            link(file)?;
        } else if Path::new(file).is_file() && kept.insert(PathBuf::from(file)) {
            let bytes = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
            write(&Path::new(TREE).join(file), &bytes)?;
        }
    }
    remove_others(Path::new(TREE), &kept)
}

/// Makes a link to the same folder, as that of the recordings is.
fn link(file: &str) -> Outcome {
    let failed = |error: std::io::Error| format!("{file}: {error}");
    let (to, copy) = (fs::read_link(file).map_err(failed)?, Path::new(TREE).join(file));
    if fs::read_link(&copy).is_ok_and(|there| there == to) {
        return Ok(());
    }
    fs::create_dir_all(copy.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    #[cfg(unix)]
    let made = std::os::unix::fs::symlink(to, copy);
    #[cfg(not(unix))]
    let made = Err(std::io::Error::other(format!("a link to {}", to.display())));
    made.map_err(failed)
}

/// Removes what an earlier copy had and the workspace has no more: it might be built.
fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // The copy does not own the files behind a link.
        if path.is_dir() && !path.is_symlink() {
            remove_others(&path, kept)?;
        } else if path.strip_prefix(TREE).is_ok_and(|file| !kept.contains(file)) {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

/// Writes a file unless it is there as it should be: what did not change is not built again.
fn write(path: &Path, bytes: &[u8]) -> Outcome {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The mutants that could not be planted, by number.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) left_out: BTreeSet<Number>,
    pub(super) unviable: BTreeSet<Number>,
}

impl Refused {
    pub(super) fn contains(&self, number: Number) -> bool {
        self.left_out.contains(&number) || self.unviable.contains(&number)
    }

    pub(super) fn len(&self) -> usize {
        self.left_out.len() + self.unviable.len()
    }
}

/// Plants all mutants but the refused in the copy; the switches come with them.
pub(super) fn plant_all(mutants: &[Mutant], refused: &mut Refused) -> Outcome {
    let mut files = BTreeMap::<&str, Vec<(Number, &Mutant)>>::new();
    for (index, mutant) in mutants.iter().enumerate() {
        let planted = files.entry(&mutant.file).or_default();
        if !refused.contains(index + 1) {
            planted.push((index + 1, mutant));
        }
    }
    for (file, mutants) in &files {
        let source = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let planted = plant(&source, mutants).map_err(|error| format!("{file}: {error}"))?;
        write(&Path::new(TREE).join(file), planted.text.as_bytes())?;
        refused.left_out.extend(planted.left_out);
        refused.unviable.extend(planted.unviable);
    }
    let sources: BTreeSet<PathBuf> = files.keys().filter_map(|file| source_folder(file)).collect();
    for folder in sources {
        let library = folder.join("lib.rs");
        let text =
            fs::read_to_string(&library).map_err(|e| format!("{}: {e}", library.display()))?;
        let text = format!("{HEAD}{text}\nmod mutant;\n");
        write(&Path::new(TREE).join(&library), text.as_bytes())?;
        let switch = SWITCH.replace("COUNT", &(mutants.len() + 1).to_string());
        write(&Path::new(TREE).join(&folder).join("mutant.rs"), switch.as_bytes())?;
    }
    Ok(())
}

/// The folder of a crate's sources: `crates/a/src` of `crates/a/src/b/c.rs`.
fn source_folder(file: &str) -> Option<PathBuf> {
    let folder = Path::new(file).ancestors().find(|folder| folder.ends_with("src"))?;
    Some(folder.to_path_buf())
}

/// A cargo that builds the copy.
pub(super) fn cargo_in_tree(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    let here = std::env::current_dir().unwrap_or_default();
    command.current_dir(TREE).env("CARGO_TARGET_DIR", here.join(BUILD));
    // Planted code breaks lints; where a mutant is in a constant the result may overflow, too.
    command.env("RUSTFLAGS", "--cap-lints warn").env("CARGO_PROFILE_DEV_DEBUG", "0");
    command.env("RUSTC_BOOTSTRAP", LIBRARIES);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_comes_with_the_crate_of_the_mutant() {
        assert_eq!(source_folder("crates/a/src/b/c.rs"), Some("crates/a/src".into()));
        assert_eq!(source_folder("build.rs"), None);
    }

    #[test]
    fn a_file_that_is_there_as_it_should_be_is_not_written_again() {
        let file = std::env::temp_dir().join(format!("pagewise-tree-{}/a", std::process::id()));
        let written = || fs::metadata(&file).and_then(|data| data.modified()).expect("written");
        write(&file, b"one").expect("room");
        let first = written();
        write(&file, b"one").expect("room");
        assert_eq!(written(), first);
        write(&file, b"two").expect("room");
        assert_eq!(fs::read(&file).expect("written"), b"two");
        fs::remove_dir_all(file.parent().expect("a folder")).expect("written above");
    }
}
