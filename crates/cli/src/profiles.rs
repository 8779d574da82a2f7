//! `pagewise profiles`: lists the GPUs that can be simulated, and the sources of their figures.

use pagewise_sim::{Evidence, GpuProfile};
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::sim_target;
use crate::status::{Answer, Failure};

/// All profiles, or the document of one.
pub(crate) fn profiles(wanted: Option<&str>) -> Result<Answer, Failure> {
    let Some(wanted) = wanted else {
        let profiles: Vec<Listed> = GpuProfile::all().iter().map(Listed::of).collect();
        return Ok(Answer::new(list(&profiles), &json!({ "profiles": profiles })));
    };
    let config = sim_target::named("profiles", wanted).map_err(Failure::Usage)?;
    let unwritable =
        |error: &dyn std::fmt::Display| Failure::Usage(format!("profiles {wanted}: {error}"));
    let text = config.gpu().to_toml().map_err(|error| unwritable(&error))?;
    let document: toml::Table = text.parse().map_err(|error| unwritable(&error))?;
    Ok(Answer::new(text, &json!({ "profile": document })))
}

/// A profile in the list.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    memory_bytes: u64,
    host_link: String,
    peer_link: String,
    /// How many figures have which evidence, best first.
    #[serde(serialize_with = "by_name")]
    figures: Vec<(Evidence, usize)>,
}

impl Listed {
    fn of(profile: &GpuProfile) -> Self {
        Self {
            name: profile.name.clone(),
            memory_bytes: profile.memory_bytes,
            host_link: profile.host_link.to_string(),
            peer_link: profile.peer_link.to_string(),
            figures: profile.evidence(),
        }
    }

    fn row(&self) -> [String; 5] {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let figures = self.figures.iter().map(|(evidence, count)| format!("{count} {evidence}"));
        [
            self.name.clone(),
            format!("{gib:.1} GiB"),
            self.host_link.clone(),
            self.peer_link.clone(),
            figures.collect::<Vec<_>>().join(", "),
        ]
    }
}

fn by_name<S: Serializer>(figures: &[(Evidence, usize)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(figures.iter().map(|(evidence, count)| (evidence.name(), count)))
}

const HEADINGS: [&str; 5] = ["profile", "memory", "host link", "peer link", "figures"];

/// One line for each profile.
fn list(profiles: &[Listed]) -> String {
    let rows: Vec<[String; 5]> = std::iter::once(HEADINGS.map(str::to_owned))
        .chain(profiles.iter().map(Listed::row))
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
