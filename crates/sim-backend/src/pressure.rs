//! The verdict on a program and a GPU: its managed memory fits, streams or thrashes; and how far
//! the verdict can be trusted.
//!
//! The verdict is read off what the simulator did. It depends on few figures of the profile: on the
//! sizes if all fits, else on the paging policy and on the order of faults, too. So the confidence
//! is made of two parts: the share of those figures that were measured on the model, and the
//! distance of the result from the border to another verdict.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::profile::GpuProfile;

/// The use that managed pages made of the memory of one device. Sizes in bytes; pages count with the
/// memory behind them, which for a whole va_block is 2 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Pressure {
    /// Memory for managed pages and for other allocations.
    pub capacity_bytes: u64,
    /// The most that both took together.
    pub peak_bytes: u64,
    /// Memory that eviction took from managed pages, each time.
    pub evicted_bytes: u64,
    /// Of that, memory that the same pages took again.
    pub returned_bytes: u64,
}

/// Whether managed memory fits a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Nothing was evicted.
    Fits,
    /// Less than half of what was evicted came back: data pass through.
    Streams,
    /// Half or more of what was evicted came back: the device works on more than it holds.
    Thrashes,
}

impl Verdict {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Streams => "streams",
            Self::Thrashes => "thrashes",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// The share of evicted memory that comes back, from which on a program thrashes.
const THRASHING_SHARE: f64 = 0.5;

impl Pressure {
    /// The verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.evicted_bytes == 0 {
            Verdict::Fits
        } else if self.returned_share() < THRASHING_SHARE {
            Verdict::Streams
        } else {
            Verdict::Thrashes
        }
    }

    fn returned_share(&self) -> f64 {
        share(self.returned_bytes, self.evicted_bytes)
    }

    /// The distance to the border of another verdict, from 0 to 1. If all fits: the share of the
    /// memory that was never used. Else the smaller of two: the evicted memory as a share of the
    /// device's, and the distance of the share that came back from a half.
    #[must_use]
    pub fn margin(&self) -> f64 {
        if self.verdict() == Verdict::Fits {
            return 1.0 - share(self.peak_bytes, self.capacity_bytes);
        }
        let evicted = share(self.evicted_bytes, self.capacity_bytes);
        let returned = (self.returned_share() - THRASHING_SHARE).abs();
        evicted.min(returned).min(1.0)
    }
}

/// A part of a whole; 1 of nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// How far a verdict can be trusted, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// Most figures behind it are no measurements of the model, or it is next to a border.
    Low,
    /// Neither low nor high.
    Fair,
    /// Nearly all figures behind it were measured on the model, and it is far from a border.
    High,
}

impl Trust {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Fair => "fair",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Trust {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// How far a verdict can be trusted, with what that derives from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Confidence {
    /// The result: high from 90 % of founded figures and a margin of 10 % on, low below half of
    /// the figures or a margin of 2 %.
    pub trust: Trust,
    /// Figures behind the verdict that were measured on the model or published for it.
    pub founded: usize,
    /// All figures behind the verdict.
    pub figures: usize,
    /// [`Pressure::margin`].
    pub margin: f64,
}

/// The sizes that decide whether all fits.
const SIZES: [&str; 2] = ["memory_bytes", "context_bytes"];
/// The tables that decide, with the sizes, which pages leave and come back.
const MOVEMENT: [&str; 2] = ["paging", "arrival"];

impl Confidence {
    pub(crate) fn of(profile: &GpuProfile, pressure: &Pressure) -> Self {
        let mut tables = SIZES.to_vec();
        if pressure.verdict() != Verdict::Fits {
            tables.extend(MOVEMENT);
        }
        let (founded, figures) = profile.founded(&tables);
        let (part, margin) = (share(founded as u64, figures as u64), pressure.margin());
        let trust = if part < 0.5 || margin < 0.02 {
            Trust::Low
        } else if part >= 0.9 && margin >= 0.1 {
            Trust::High
        } else {
            Trust::Fair
        };
        Self { trust, founded, figures, margin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn pressure(peak: u64, evicted: u64, returned: u64) -> Pressure {
        Pressure {
            capacity_bytes: 100 * GIB,
            peak_bytes: peak * GIB,
            evicted_bytes: evicted * GIB,
            returned_bytes: returned * GIB,
        }
    }

    #[test]
    fn half_of_what_was_evicted_coming_back_is_thrashing() {
        let verdicts = [(0, 0), (10, 0), (10, 4), (10, 5), (10, 10)]
            .map(|(evicted, returned)| pressure(100, evicted, returned).verdict());
        let (streams, thrashes) = (Verdict::Streams, Verdict::Thrashes);
        assert_eq!(verdicts, [Verdict::Fits, streams, streams, thrashes, thrashes]);
    }

    /// If all fits, the memory that was never used. Else the nearer border: nothing evicted, or half
    /// of it coming back.
    #[test]
    fn a_margin_is_the_distance_to_the_nearest_border() {
        let margins = [(75, 0, 0), (100, 20, 5), (100, 80, 60), (100, 80, 20), (100, 400, 400)]
            .map(|(peak, evicted, returned)| pressure(peak, evicted, returned).margin());
        assert_eq!(margins, [0.25, 0.2, 0.25, 0.25, 0.5]);
        assert_eq!(Pressure::default().margin(), 0.0, "a device without memory");
    }

    #[test]
    fn a_margin_of_2_percent_is_fair_and_one_of_10_percent_high() {
        let trust = |evicted| GpuProfile::h200().confidence(&pressure(100, evicted, 0)).trust;
        let (low, fair, high) = (Trust::Low, Trust::Fair, Trust::High);
        assert_eq!([1, 2, 9, 10].map(trust), [low, fair, fair, high]);
    }

    #[test]
    fn verdicts_and_trust_are_written_by_their_names() {
        let written = |it: &dyn fmt::Display| format!("{it:>9}|");
        for (verdict, name) in [
            (Verdict::Fits, "fits"),
            (Verdict::Streams, "streams"),
            (Verdict::Thrashes, "thrashes"),
        ] {
            assert_eq!((verdict.name(), written(&verdict)), (name, format!("{name:>9}|")));
            assert_eq!(toml::Value::try_from(verdict), Ok(name.into()));
        }
        for (trust, name) in [(Trust::Low, "low"), (Trust::Fair, "fair"), (Trust::High, "high")] {
            assert_eq!((trust.name(), written(&trust)), (name, format!("{name:>9}|")));
            assert_eq!(toml::Value::try_from(trust), Ok(name.into()));
        }
    }

    #[test]
    fn a_verdict_next_to_a_border_is_not_trusted_on_any_gpu() {
        let near = [pressure(99, 0, 0), pressure(100, 1, 0), pressure(100, 100, 51)];
        let far = [pressure(80, 0, 0), pressure(100, 20, 0), pressure(100, 100, 90)];
        for profile in GpuProfile::all() {
            for pressure in near {
                let confidence = profile.confidence(&pressure);
                assert_eq!(confidence.trust, Trust::Low, "{}: {pressure:?}", profile.name);
            }
            for pressure in far {
                let confidence = profile.confidence(&pressure);
                assert!(confidence.margin >= 0.1, "{}: {pressure:?}", profile.name);
                let high = confidence.trust == Trust::High;
                assert_eq!(high, profile.name == "h200", "{}: {confidence:?}", profile.name);
            }
        }
    }

    #[test]
    fn trust_falls_with_the_share_of_measured_figures() {
        // Sizes: one of two is published everywhere. The document of a stranger has none.
        let stranger = GpuProfile::from_toml("base = 'h200'\nname = 'x'").expect("a profile");
        let fits = pressure(50, 0, 0);
        let trust = |profile: &GpuProfile| profile.confidence(&fits).trust;
        assert_eq!(trust(&stranger), Trust::Low);
        assert_eq!(trust(&GpuProfile::named("a100").expect("shipped")), Trust::Fair);
        assert_eq!(trust(&GpuProfile::h200()), Trust::High);
    }

    #[test]
    fn a_verdict_beyond_the_memory_depends_on_more_figures() {
        let profile = GpuProfile::named("v100").expect("shipped");
        let fits = profile.confidence(&pressure(50, 0, 0));
        let streams = profile.confidence(&pressure(100, 50, 0));
        assert_eq!((fits.founded, fits.figures), (1, 2));
        assert!(streams.figures > 20 && streams.founded > 10, "{streams:?}");
    }
}
