//! Checks of the packages that users get: their content, their licences, the oldest compiler, the
//! public API.

mod licences;
mod oldest;
mod packages;
mod public_api;

pub(crate) use licences::check as licences;
pub(crate) use oldest::check as oldest_compiler;
pub(crate) use packages::check as packages;
pub(crate) use public_api::{check as public_api, write as write_public_api};

use serde_json::Value;

use crate::command::{Outcome, metadata};

/// A package that is published.
pub(crate) struct Package {
    pub(crate) name: String,
    version: String,
    /// The version of Rust that it promises to build with.
    rust_version: String,
    is_library: bool,
}

/// The packages of the workspace that are published, in the order of `cargo metadata`.
fn published() -> Outcome<Vec<Package>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    // An empty list of registries is how `publish = false` reads there.
    let published = packages.iter().filter(|one| one["publish"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let published: Vec<_> = published
        .map(|one| Package {
            name: text(&one["name"]),
            version: text(&one["version"]),
            rust_version: text(&one["rust_version"]),
            is_library: is_library(one),
        })
        .collect();
    if published.is_empty() { Err("no package is published".to_owned()) } else { Ok(published) }
}

/// The published packages that are libraries.
pub(crate) fn libraries() -> Outcome<Vec<Package>> {
    Ok(published()?.into_iter().filter(|package| package.is_library).collect())
}

fn is_library(package: &Value) -> bool {
    let targets = package["targets"].as_array().into_iter().flatten();
    let mut kinds = targets.flat_map(|target| target["kind"].as_array().into_iter().flatten());
    kinds.any(|kind| kind == "lib" || kind == "rlib")
}
