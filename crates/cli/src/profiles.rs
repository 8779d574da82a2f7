//! `pagewise profiles`: lists the GPUs that can be simulated, and the sources of their figures.

use pagewise_sim::GpuProfile;

use crate::sim_target;

/// One line for each shipped profile.
pub(crate) fn list() -> String {
    let rows: Vec<[String; 5]> = std::iter::once(HEADINGS.map(str::to_owned))
        .chain(GpuProfile::all().iter().map(row))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4].map(width);
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(widths) {
            text += &format!("{cell:<width$}  ");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

const HEADINGS: [&str; 5] = ["profile", "memory", "host link", "peer link", "figures"];

fn row(profile: &GpuProfile) -> [String; 5] {
    let gib = profile.memory_bytes as f64 / f64::from(1 << 30);
    let counts = profile.evidence();
    let figures: Vec<String> =
        counts.into_iter().map(|(evidence, count)| format!("{count} {evidence}")).collect();
    [
        profile.name.clone(),
        format!("{gib:.1} GiB"),
        profile.host_link.to_string(),
        profile.peer_link.to_string(),
        figures.join(", "),
    ]
}

/// A profile as a document, with the sources of its figures.
pub(crate) fn document(profile: &str) -> Result<String, String> {
    let config = sim_target::named("profiles", profile)?;
    config.gpu().to_toml().map_err(|error| format!("profiles {profile}: {error}"))
}
