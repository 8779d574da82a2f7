//! An operation as an equation of the fit.

use super::samples::Sample;

/// The spread of an operation's own runs at which it counts half, in octaves.
const NOISE: f64 = 0.25;

/// One operation, as an equation.
#[derive(Debug)]
pub(super) struct Equation<'a> {
    pub(super) sample: &'a Sample,
    /// Square root of how much it counts.
    pub(super) weight: f64,
}

impl<'a> Equation<'a> {
    pub(super) fn new(sample: &'a Sample, shares: &[f64]) -> Self {
        let recorded = sample.recorded;
        let spread = (recorded.median.max(1) as f64 / recorded.min.max(1) as f64).log2();
        let weight = shares[sample.id.file] / (1.0 + (spread / NOISE).powi(2));
        Self { sample, weight: weight.sqrt() }
    }
}
