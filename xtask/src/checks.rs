//! The checks, besides tests, that must hold before a change lands.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{Outcome, build_workspace, cargo, metadata, output, run, target_directory};
use crate::release;

/// The code is formatted.
pub(crate) fn formatting() -> Outcome {
    run(&mut cargo(&["fmt", "--all", "--check"]))
}

/// No lint complains about anything, tests and benches included.
pub(crate) fn lints() -> Outcome {
    let arguments = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked"];
    run(cargo(&arguments).args(["--", "-D", "warnings"]))
}

/// Each package compiles without features and with each feature alone.
pub(crate) fn features() -> Outcome {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(features) = package["features"].as_object().filter(|all| !all.is_empty()) else {
            continue;
        };
        let bare = ["check", "--quiet", "--package", name, "--no-default-features"];
        run(&mut cargo(&bare))?;
        for feature in features.keys().filter(|feature| *feature != "default") {
            run(cargo(&bare).args(["--features", feature]))?;
        }
    }
    Ok(())
}

/// A command of cargo's about interop with cudarc, for a version of CUDA: a feature that excludes
/// the others.
fn interop(command: &str, version: &str, target: &Path) -> Command {
    let mut cargo = cargo(&[command, "--quiet", "--locked", "--features", version]);
    cargo.args(["--manifest-path", "tests/cudarc-interop/Cargo.toml", "--target-dir"]);
    cargo.arg(target.join("cudarc-interop"));
    cargo
}

/// Interop compiles for the other versions of CUDA that cudarc knows than that of the gate.
pub(crate) fn cudarc_versions() -> Outcome {
    let target = target_directory()?;
    ["cuda-12000", "cuda-12090", "cuda-13040"]
        .iter()
        .try_for_each(|version| run(&mut interop("check", version, &target)))
}

/// Interop compiles, and runs over the simulated driver.
pub(crate) fn cudarc() -> Outcome {
    let target = target_directory()?;
    if !cfg!(target_os = "linux") {
        return run(&mut interop("check", "cuda-13000", &target));
    }
    build_workspace()?;
    let folder = target.join("simulated-driver");
    let copied = fs::create_dir_all(&folder).and_then(|()| {
        fs::copy(target.join("debug/libpagewise_driver.so"), folder.join("libcuda.so.1"))
    });
    copied.map_err(|error| format!("the simulated driver cannot be copied: {error}"))?;
    // With a second device, there are contexts that cudarc's work may be in besides the first.
    for options in ["", "devices=2"] {
        let mut interop = interop("run", "cuda-13000", &target);
        run(interop.env("LD_LIBRARY_PATH", &folder).env("PAGEWISE_DRIVER", options))?;
    }
    // The status of a panic is 101, that of an error which `main` returns is 1.
    let mut without = interop("run", "cuda-13000", &target);
    without.env("PAGEWISE_LIBCUDA", "/nonexistent/libcuda.so.1");
    match without.status().map_err(|error| error.to_string())?.code() {
        Some(1) => Ok(()),
        code => Err(format!("without a driver the status is {code:?} instead of 1")),
    }
}

/// The documentation builds without a warning, with all features and without any: no link leads to
/// an item that a build lacks.
pub(crate) fn documentation() -> Outcome {
    let doc = |arguments: &[&str]| {
        let mut cargo = cargo(&["doc", "--no-deps", "--quiet", "--locked"]);
        cargo.args(arguments).env("RUSTDOCFLAGS", "-D warnings");
        cargo
    };
    run(&mut doc(&["--workspace", "--all-features"]))?;
    let libraries = release::libraries()?;
    let libraries = libraries.iter().flat_map(|library| ["--package", &library.name]);
    run(doc(&["--no-default-features"]).args(libraries))
}

/// The crates that a build may not contain.
struct Forbidden {
    package: &'static str,
    features: &'static [&'static str],
    crates: &'static [&'static str],
}

const FORBIDDEN: &[Forbidden] = &[
    Forbidden {
        package: "pagewise",
        features: &["--no-default-features", "--features", "sim"],
        crates: &["cudarc", "libloading", "mockall", "pagewise-cuda", "pagewise-trace"],
    },
    Forbidden {
        package: "pagewise",
        features: &["--no-default-features", "--features", "cuda"],
        crates: &["cudarc", "mockall", "pagewise-sim"],
    },
    // The program chooses the back end, not the managers.
    Forbidden {
        package: "pagewise-managers",
        features: &[],
        crates: &["mockall", "pagewise-cuda", "pagewise-sim"],
    },
    Forbidden {
        package: "pagewise-hal",
        features: &["--no-default-features"],
        crates: &["mockall", "serde", "libloading", "cudarc"],
    },
    Forbidden {
        package: "pagewise-trace",
        features: &[],
        crates: &["pagewise-sim", "pagewise-cuda", "mockall"],
    },
];

/// The command is built of fewer crates, those of the project and of build scripts included.
const COMMAND_CRATES: usize = 71;

/// Builds contain no crate that they have no use for, and the command is built of few.
pub(crate) fn dependencies() -> Outcome {
    locks_are_current()?;
    forbidden_crates()?;
    let tree = ["tree", "--edges", "normal,build", "--prefix", "none", "--locked"];
    let text = output(cargo(&tree).args(["--package", "pagewise-cli"]))?;
    let names: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    println!("pagewise-cli: {} crates", names.len());
    if names.len() >= COMMAND_CRATES {
        return Err(format!("pagewise-cli is built of {COMMAND_CRATES} crates or more"));
    }
    Ok(())
}

/// The lock files of the packages outside the workspace fit the workspace's manifests: a change of
/// a dependency here would else be noticed only minutes later, by a build of those packages.
fn locks_are_current() -> Outcome {
    for package in ["tests/cudarc-interop", "fuzz/libfuzzer"] {
        let manifest = format!("{package}/Cargo.toml");
        output(&mut cargo(&["tree", "--depth", "0", "--locked", "--manifest-path", &manifest]))
            .map_err(|why| format!("{package}/Cargo.lock is old, `cargo tree` mends it: {why}"))?;
    }
    Ok(())
}

fn forbidden_crates() -> Outcome {
    for Forbidden { package, features, crates } in FORBIDDEN {
        let mut tree = cargo(&["tree", "--edges", "normal", "--prefix", "none", "--locked"]);
        let text = output(tree.args(["--package", package]).args(*features))?;
        let names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        for name in *crates {
            if names.contains(name) {
                return Err(format!("{package} with {features:?} depends on {name}"));
            }
        }
        println!("{package} {}: none of {}", features.join(" "), crates.join(", "));
    }
    Ok(())
}

/// The simulator's records are the same in a release build as in the builds that tests run in.
pub(crate) fn determinism() -> Outcome {
    let arguments = ["test", "--release", "--locked", "--package", "pagewise-tests"];
    run(cargo(&arguments).args(["--test", "programs", "records_answers_and_times"]))
}

/// The managers of memory and the sets of live handles under random thread schedules: a build of
/// its own, in which their locks are those of `shuttle`.
pub(crate) fn schedules() -> Outcome {
    const CFG: &str = "--cfg pagewise_shuttle";
    let flags = std::env::var("RUSTFLAGS").map_or(CFG.to_owned(), |flags| format!("{flags} {CFG}"));
    // A folder of its own, as other flags would have everything built anew.
    let arguments = ["test", "--locked", "--target-dir", "target/shuttle", "--package"];
    let managers = ["pagewise-managers", "--test", "manager_shuttle", "--test", "emm_shuttle"];
    let handles = ["pagewise-cuda", "--lib", "live::schedules"];
    for tests in [&managers[..], &handles[..]] {
        let mut cargo = cargo(&arguments);
        // To optimise them takes longer than to run them.
        cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
        run(cargo.args(tests).env("RUSTFLAGS", &flags))?;
    }
    Ok(())
}

/// The main command replays the shipped recordings, which all agree.
pub(crate) fn main_command() -> Outcome {
    run(&mut cargo(&["run", "--release", "--quiet", "--locked"]))
}
