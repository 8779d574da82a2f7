//! The public API of each library, as a text in the repository: a change of the API is a change of
//! that text, which a reviewer sees.

use std::fs;
use std::path::{Path, PathBuf};

use public_api::{Builder, MINIMUM_NIGHTLY_RUST_VERSION};
use serde_json::Value;

use super::{Package, libraries};
use crate::command::{Outcome, cargo, run, target_directory};

/// The folder of the texts.
const FOLDER: &str = "docs/api";

/// The form of rustdoc's JSON that the library `public-api` reads: that of Rust 1.95.
const FORMAT: u64 = 57;

/// Every library has the API that its text says. Says so and goes on if this compiler writes
/// another form of JSON than the check reads.
pub(crate) fn check() -> Outcome {
    let Some(apis) = all()? else { return Ok(()) };
    let mut differences = Vec::new();
    for (path, api) in apis {
        let stored = fs::read_to_string(&path).unwrap_or_default();
        let gone = stored.lines().filter(|line| !api.lines().any(|other| other == *line));
        let new = api.lines().filter(|line| !stored.lines().any(|other| other == *line));
        let path = path.display();
        differences.extend(gone.map(|line| format!("{path}: - {line}")));
        differences.extend(new.map(|line| format!("{path}: + {line}")));
    }
    if differences.is_empty() {
        return Ok(());
    }
    println!("{}", differences.join("\n"));
    Err(format!(
        "{} lines of the public API differ; if they are meant: cargo xtask api --write",
        differences.len()
    ))
}

/// Writes the texts anew.
pub(crate) fn write() -> Outcome {
    let apis = all()?.ok_or("this compiler cannot write the texts")?;
    for (path, api) in apis {
        fs::write(&path, api).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// The API of each library, with the file that holds it; `None` if this compiler's JSON cannot be
/// read.
fn all() -> Outcome<Option<Vec<(PathBuf, String)>>> {
    let target = target_directory()?;
    let rustdoc = rustdoc_of_json(&target)?;
    let mut apis = Vec::new();
    for package in libraries()?.iter() {
        let json = documented(package, &rustdoc, &target)?;
        let form = form_of(&json)?;
        if form != FORMAT {
            println!(
                "skipped: this compiler writes rustdoc's JSON in form {form}, public-api reads \
                 form {FORMAT} (Rust 1.95, or {MINIMUM_NIGHTLY_RUST_VERSION})"
            );
            return Ok(None);
        }
        let path = Path::new(FOLDER).join(format!("{}.txt", package.name));
        apis.push((path, api_of(&json)?));
    }
    Ok(Some(apis))
}

/// A program that runs rustdoc and lets a stable one write JSON. A variable for all of cargo would
/// do, too, but then cargo builds some dependencies anew.
fn rustdoc_of_json(target: &Path) -> Outcome<PathBuf> {
    const TEXT: &str = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";
    let path = target.join("rustdoc-of-json");
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::write(&path, TEXT).map_err(failed)?;
    #[cfg(unix)]
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .map_err(failed)?;
    Ok(path)
}

/// The documentation of a library as JSON, with all features.
fn documented(package: &Package, rustdoc: &Path, target: &Path) -> Outcome<PathBuf> {
    let mut doc = cargo(&["rustdoc", "--quiet", "--locked", "--lib", "--all-features"]);
    doc.args(["--package", &package.name, "--"]);
    doc.args(["-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    run(doc.env("RUSTDOC", rustdoc))?;
    Ok(target.join(format!("doc/{}.json", package.name.replace('-', "_"))))
}

fn form_of(json: &Path) -> Outcome<u64> {
    let text = fs::read_to_string(json).map_err(|error| format!("{}: {error}", json.display()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    value["format_version"].as_u64().ok_or(format!("{} names no form", json.display()))
}

/// An item on each line, without what every type has (blanket and auto traits), what a derive says,
/// and the mock, which follows the trait and is exempt from semantic versioning.
fn api_of(json: &Path) -> Outcome<String> {
    let builder = Builder::from_rustdoc_json(json);
    let builder = builder.omit_blanket_impls(true).omit_auto_trait_impls(true);
    let api = builder.omit_auto_derived_impls(true).build().map_err(|error| error.to_string())?;
    let lines = api.items().map(|item| format!("{item}\n"));
    Ok(lines.filter(|line| !line.contains("::mock::")).collect())
}
