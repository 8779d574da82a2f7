//! Packages build from the files that are in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Package, published};
use crate::command::{Outcome, cargo, metadata, run};

/// Packs every package, unpacks it outside of its place in the workspace, and builds it there.
pub(crate) fn check() -> Outcome {
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str().ok_or("cargo names no target directory")?;
    let target = Path::new(target);
    let packages = published()?;
    let folder = unpacked(&packages, target)?;
    for package in &packages {
        let mut build = cargo(&["build", "--quiet", "--package", &package.name, "--manifest-path"]);
        // With the artifacts of the workspace: dependencies are built already.
        run(build.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(target))?;
    }
    Ok(())
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
    let mut manifest = "[workspace]\nresolver = \"3\"\nmembers = [\"pagewise*\"]\n\n\
                        [profile.dev]\nopt-level = 1\n\n[patch.crates-io]\n"
        .to_owned();
    for Package { name, version, .. } in packages {
        let packed = target.join(format!("package/{name}-{version}.crate"));
        // `m`: files are as new as they are here. All packages give them one date, by which cargo
        // would take a changed file for the one that it has built.
        run(Command::new("tar").arg("-xmzf").arg(packed).arg("-C").arg(&folder))?;
        manifest.push_str(&format!("{name} = {{ path = \"{name}-{version}\" }}\n"));
    }
    fs::write(folder.join("Cargo.toml"), manifest).map_err(failed)?;
    // The versions that everything else is tested with.
    fs::copy("Cargo.lock", folder.join("Cargo.lock")).map_err(failed)?;
    Ok(folder)
}
