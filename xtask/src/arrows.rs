//! The arrows between crates: which crate of the workspace may depend on which.
//!
//! `cargo metadata` lists every dependency that a manifest names, of any feature and any target, so
//! an arrow is found even if no default build follows it. Dependencies of tests do not count: a
//! test may look at its crate from a layer above. The folders outside `crates/` are users of the
//! crates, and no crate may depend on them.

use serde_json::Value;

use crate::command::{Outcome, metadata};

/// A crate, its layer, and the crates of the workspace that it may depend on.
struct Crate {
    name: &'static str,
    /// Arrows point from a higher layer to a lower one.
    layer: u8,
    may_use: &'static [&'static str],
}

/// ARCHITECTURE.md draws these arrows.
const CRATES: &[Crate] = &[
    Crate { name: "pagewise-hal", layer: 0, may_use: &[] },
    Crate { name: "pagewise-sim", layer: 1, may_use: &["pagewise-hal", "pagewise-ptx"] },
    Crate { name: "pagewise-ptx", layer: 0, may_use: &[] },
    Crate { name: "pagewise-cuda", layer: 1, may_use: &["pagewise-hal"] },
    Crate { name: "pagewise-trace", layer: 1, may_use: &["pagewise-hal"] },
    Crate {
        name: "pagewise",
        layer: 2,
        may_use: &["pagewise-hal", "pagewise-sim", "pagewise-cuda", "pagewise-trace"],
    },
    Crate { name: "pagewise-managers", layer: 3, may_use: &["pagewise"] },
    Crate {
        name: "pagewise-driver",
        layer: 2,
        may_use: &["pagewise-hal", "pagewise-ptx", "pagewise-sim", "pagewise-trace"],
    },
    Crate { name: "pagewise-cudart", layer: 0, may_use: &[] },
    Crate { name: "pagewise-cudart-12", layer: 1, may_use: &["pagewise-cudart"] },
    Crate { name: "pagewise-cudart-13", layer: 1, may_use: &["pagewise-cudart"] },
    Crate { name: "pagewise-nvml", layer: 0, may_use: &[] },
    Crate {
        name: "pagewise-cli",
        layer: 2,
        may_use: &["pagewise-hal", "pagewise-sim", "pagewise-cuda", "pagewise-trace"],
    },
];

/// Every dependency between crates of the workspace is one that the table allows.
pub(crate) fn check() -> Outcome {
    let metadata = metadata()?;
    let mut wrong = arrows_up(CRATES);
    wrong.extend(wrong_arrows(&metadata)?);
    if wrong.is_empty() {
        println!("arrows between {} crates: all as ARCHITECTURE.md draws them", CRATES.len());
        return Ok(());
    }
    Err(wrong.join("; "))
}

/// Arrows of a table that do not point to a lower layer, a sentence for each.
fn arrows_up(crates: &[Crate]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Crate { name, layer, may_use } in crates {
        for other in *may_use {
            let below = crates.iter().find(|one| one.name == *other);
            if below.is_none_or(|one| one.layer >= *layer) {
                wrong.push(format!("{name} may use {other}, which is in no lower layer"));
            }
        }
    }
    wrong
}

/// The dependencies that contradict the table, a sentence for each.
fn wrong_arrows(metadata: &Value) -> Outcome<Vec<String>> {
    let root = metadata["workspace_root"].as_str().ok_or("cargo metadata names no root")?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let within = manifest.strip_prefix(root).unwrap_or(manifest);
        if !within.trim_start_matches(['/', '\\']).starts_with("crates") {
            continue;
        }
        let Some(known) = CRATES.iter().find(|known| known.name == name) else {
            wrong.push(format!("{name} has no layer: add it to CRATES in xtask/src/arrows.rs"));
            continue;
        };
        let used = uses(package);
        for other in used.iter().filter(|other| !known.may_use.contains(&other.as_str())) {
            wrong.push(format!("{name} depends on {other}, and ARCHITECTURE.md has no such arrow"));
        }
        for other in known.may_use.iter().filter(|other| !used.iter().any(|it| it == *other)) {
            wrong.push(format!("{name} may use {other} and does not: take the arrow away"));
        }
    }
    Ok(wrong)
}

/// The crates of the workspace that a package depends on outside of its tests.
fn uses(package: &Value) -> Vec<String> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let local = dependencies.filter(|one| one["path"].is_string() && one["kind"] != "dev");
    local.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Metadata of a workspace with the dependencies of the table, and one more.
    fn with_one_more(name: &str, kind: Value, other: &str) -> Value {
        let mut packages = Vec::new();
        for one in CRATES {
            let arrow = |to: &str, kind: Value| json!({"name": to, "path": "/w", "kind": kind});
            let mut all: Vec<Value> = one.may_use.iter().map(|to| arrow(to, Value::Null)).collect();
            all.push(json!({"name": "serde", "path": null, "kind": null}));
            if one.name == name {
                all.push(arrow(other, kind.clone()));
            }
            let manifest = format!("/w/crates/{}/Cargo.toml", one.name);
            packages.push(json!({
                "name": one.name, "manifest_path": manifest, "dependencies": all,
            }));
        }
        json!({"workspace_root": "/w", "packages": packages})
    }

    #[test]
    fn every_allowed_arrow_points_to_a_lower_layer() {
        assert_eq!(arrows_up(CRATES), [""; 0]);
        let level = [
            Crate { name: "a", layer: 1, may_use: &[] },
            Crate { name: "b", layer: 1, may_use: &["a", "missing"] },
        ];
        let found = arrows_up(&level);
        assert_eq!(found.len(), 2, "a neighbour is not below, nor is an unknown crate: {found:?}");
    }

    #[test]
    fn a_wrong_arrow_is_found_and_named() {
        let good = with_one_more("pagewise-driver", Value::Null, "pagewise-sim");
        assert_eq!(wrong_arrows(&good), Ok(vec![]));
        for (name, other) in [("pagewise-hal", "pagewise-sim"), ("pagewise-driver", "pagewise")] {
            let found = wrong_arrows(&with_one_more(name, Value::Null, other)).expect("readable");
            let says = format!("{name} depends on {other}, and ARCHITECTURE.md has no such arrow");
            assert_eq!(found, [says]);
        }
        let build = wrong_arrows(&with_one_more("pagewise-hal", json!("build"), "xtask"));
        assert_eq!(build.expect("readable").len(), 1, "a build script is part of the crate");
    }

    #[test]
    fn a_dependency_of_tests_alone_is_no_arrow() {
        let metadata = with_one_more("pagewise-cli", json!("dev"), "pagewise-driver");
        assert_eq!(wrong_arrows(&metadata), Ok(vec![]));
    }

    #[test]
    fn a_crate_without_a_layer_and_an_arrow_that_no_crate_needs_are_found() {
        let stranger = json!({
            "name": "stranger", "manifest_path": "/w/crates/stranger/Cargo.toml", "dependencies": [],
        });
        let mut metadata = with_one_more("pagewise-hal", json!("dev"), "pagewise-hal");
        metadata["packages"].as_array_mut().expect("a list").push(stranger);
        metadata["packages"][1]["dependencies"] = json!([]);
        let found = wrong_arrows(&metadata).expect("readable");
        let says = [
            "pagewise-sim may use pagewise-hal and does not",
            "pagewise-sim may use pagewise-ptx and does not",
            "stranger has no layer",
        ];
        assert_eq!(found.len(), says.len());
        for says in says {
            assert!(found.iter().any(|found| found.contains(says)), "{says}: {found:?}");
        }
    }
}
