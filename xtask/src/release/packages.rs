//! Packages build from the files that are in them, and a new user's steps work with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Package, published};
use crate::command::{Outcome, cargo, run, target_directory};

const WORKSPACE: &str = "[workspace]\nresolver = \"3\"\nmembers = [\"pagewise*\"]\n\n";

/// Dependencies as the workspace builds them, so that they are built once. To optimise the packages
/// takes longer than to run them.
const DEPENDENCIES: &str = "[profile.dev]\nopt-level = 1\n";

/// Packs every package, unpacks it outside of its place in the workspace, builds it there, and then
/// follows the README with the unpacked packages.
pub(crate) fn check() -> Outcome {
    let target = target_directory()?;
    let packages = published()?;
    let folder = unpacked(&packages, &target)?;
    for package in &packages {
        let mut check = cargo(&["check", "--quiet", "--package", &package.name, "--manifest-path"]);
        // With the artifacts of the workspace: dependencies are built already.
        run(check.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(&target))?;
    }
    run(Command::new("tests/first-hour/run").arg(&folder).arg(target))
}

/// Packs, and unpacks into a workspace in which the packages stand in for those of the registry.
fn unpacked(packages: &[Package], target: &Path) -> Outcome<PathBuf> {
    let mut pack = cargo(&["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"]);
    pack.arg(target);
    run(pack.args(packages.iter().flat_map(|package| ["--package", &package.name])))?;
    let folder = target.join("packages");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    let mut profiles = DEPENDENCIES.to_owned();
    let mut patches = "\n[patch.crates-io]\n".to_owned();
    for Package { name, version, .. } in packages {
        let packed = target.join(format!("package/{name}-{version}.crate"));
        // `m`: files are as new as they are here. All packages give them one date, by which cargo
        // would take a changed file for the one that it has built.
        run(Command::new("tar").arg("-xmzf").arg(packed).arg("-C").arg(&folder))?;
        profiles.push_str(&format!("[profile.dev.package.{name}]\nopt-level = 0\n"));
        patches.push_str(&format!("{name} = {{ path = \"{name}-{version}\" }}\n"));
    }
    let manifest = format!("{WORKSPACE}{profiles}{patches}");
    fs::write(folder.join("Cargo.toml"), manifest).map_err(failed)?;
    // The versions that everything else is tested with.
    fs::copy("Cargo.lock", folder.join("Cargo.lock")).map_err(failed)?;
    Ok(folder)
}
