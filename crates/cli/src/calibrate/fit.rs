//! Fitting figures to recorded times.
//!
//! The fit minimises the sum over operations of a robust loss of log2(predicted / recorded):
//! quadratic below a quarter of an octave, linear above, so that operations which the model does
//! not understand do not pull the others along. Three things are added and weighed:
//!
//! - Recordings count alike, however long they are, and operations that vary from run to run count
//!   less.
//! - The total of each recording is one more equation: a robust fit alone follows the medians and
//!   misses the rare long times.
//! - A weak pull towards the start decides between figures that the recordings cannot tell apart.
//!
//! Figures are fitted as their logarithms, so none becomes negative and all count alike whatever
//! their size; a figure that starts at 0 is not part of the model and stays 0.

use levenberg_marquardt::LevenbergMarquardt;
use pagewise_sim::CostParams;

use super::equation::Equation;
use super::figures::{Figures, Role};
use super::problem::Problem;
use super::samples::Sample;

/// Evaluations of all times per figure before the optimiser gives up; a fit takes a tenth.
const PATIENCE: usize = 20;

/// The result of a fit.
#[derive(Debug, Clone)]
pub(crate) struct Fitted {
    pub(crate) params: CostParams,
    /// Names of figures that were fitted.
    pub(crate) figures: Vec<String>,
    /// Names of figures that occur in no operation: they kept their values.
    pub(crate) without_evidence: Vec<String>,
    /// Whether the optimiser came to rest.
    pub(crate) converged: bool,
}

/// Fits all figures, from those that the samples' terms were found with.
pub(crate) fn fit(start: &CostParams, samples: &[&Sample]) -> Fitted {
    let figures = Figures::new(start);
    let shares = shares(samples);
    let rows: Vec<Equation<'_>> =
        samples.iter().map(|sample| Equation::new(sample, &shares)).collect();
    let (free, without_evidence) = split(&figures, &rows);
    let names = free.iter().map(|&at| figures.name(at).to_owned()).collect();
    let problem = Problem::new(figures, rows, free);
    let (problem, report) = LevenbergMarquardt::new().with_patience(PATIENCE).minimize(problem);
    let params = problem.params_rounded();
    let converged = report.termination.was_successful();
    Fitted { params, figures: names, without_evidence, converged }
}

/// How much an operation of each recording counts, 1 on average.
fn shares(samples: &[&Sample]) -> Vec<f64> {
    let files = samples.iter().map(|sample| sample.id.file.saturating_add(1)).max().unwrap_or(0);
    let mut counts = vec![0_u64; files];
    for sample in samples.iter().filter(|sample| sample.id.is_judged()) {
        let count = &mut counts[sample.id.file];
        *count = count.saturating_add(1);
    }
    let used = counts.iter().filter(|&&count| count > 0).count().max(1);
    let each = counts.iter().sum::<u64>() as f64 / used as f64;
    counts.iter().map(|&count| each.max(1.0) / count.max(1) as f64).collect()
}

/// Figures that matter, and the names of those that do not.
fn split(figures: &Figures, rows: &[Equation<'_>]) -> (Vec<usize>, Vec<String>) {
    let mut matters = vec![false; figures.len()];
    for row in rows {
        row.sample.terms.figures().for_each(|at| matters[at] = true);
    }
    let fitted = figures.with_role(Role::Price).chain(figures.with_role(Role::Shape));
    let (mut free, without): (Vec<usize>, Vec<usize>) = fitted.partition(|&at| matters[at]);
    free.sort_unstable();
    (free, without.into_iter().map(|at| figures.name(at).to_owned()).collect())
}
