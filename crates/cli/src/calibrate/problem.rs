//! The fit as a least-squares problem: residuals and their derivatives.
//!
//! Equations: one per operation, one per recording's total, one per figure that holds it near its
//! start. Unknowns: the natural logarithm of each figure over its start.

use std::f64::consts::LN_2;

use levenberg_marquardt::LeastSquaresProblem;
use nalgebra::{DMatrix, DVector, Dyn, storage::Owned};
use pagewise_sim::CostParams;

use super::equation::Equation;
use super::figures::Figures;

/// Where the loss of an operation turns from quadratic to linear, in octaves.
const TURN: f64 = 0.25;
/// How much the total of a recording counts, in operations per operation.
const TOTAL: f64 = 0.1;
/// How much a figure's distance from its start counts, in operations per octave.
const PULL: f64 = 0.02;
/// Half the step of a numerical derivative, in natural logarithms.
const STEP: f64 = 1e-4;
/// The least time of an operation: for logarithms.
const LEAST_NS: f64 = 1.0;

#[derive(Debug)]
pub(super) struct Problem<'a> {
    figures: Figures,
    rows: Vec<Equation<'a>>,
    totals: Vec<Total>,
    /// The figures that are fitted.
    free: Vec<usize>,
    /// Their distance from the start.
    away: DVector<f64>,
    values: Vec<f64>,
    times: Vec<f64>,
}

/// The sum over a recording, as an equation.
#[derive(Debug)]
struct Total {
    /// Square root of how much it counts.
    weight: f64,
    rows: Vec<usize>,
    recorded_ns: f64,
}

impl Total {
    fn all(rows: &[Equation<'_>]) -> Vec<Self> {
        let files = rows.iter().map(|row| row.sample.id.file.saturating_add(1)).max().unwrap_or(0);
        let of = |file: usize| -> Vec<usize> {
            let judged =
                |row: &Equation<'_>| row.sample.id.file == file && row.sample.id.is_judged();
            (0..rows.len()).filter(|&at| judged(&rows[at])).collect()
        };
        let total = |own: Vec<usize>| Self {
            weight: (TOTAL * rows.len() as f64 / files as f64).sqrt(),
            recorded_ns: own.iter().map(|&at| rows[at].sample.recorded.median as f64).sum(),
            rows: own,
        };
        (0..files).map(of).filter(|own| !own.is_empty()).map(total).collect()
    }

    fn predicted_ns(&self, times: &[f64]) -> f64 {
        self.rows.iter().map(|&row| times[row]).sum()
    }
}

impl<'a> Problem<'a> {
    pub(super) fn new(figures: Figures, rows: Vec<Equation<'a>>, free: Vec<usize>) -> Self {
        let mut problem = Self {
            away: DVector::zeros(free.len()),
            values: figures.values.clone(),
            times: Vec::new(),
            totals: Total::all(&rows),
            figures,
            rows,
            free,
        };
        problem.update();
        problem
    }

    /// The figures, to four significant digits: no more were measured.
    pub(super) fn params_rounded(&self) -> CostParams {
        let rounded = |value: &f64| -> f64 {
            format!("{value:.3e}").parse().expect("a number as it was just written")
        };
        self.figures.params(&self.values.iter().map(rounded).collect::<Vec<f64>>())
    }

    fn update(&mut self) {
        for (&at, away) in self.free.iter().zip(&self.away) {
            self.values[at] = self.figures.values[at] * away.exp();
        }
        let params = self.figures.params(&self.values);
        let time = |row: &Equation<'_>| row.sample.terms.ns(&self.values, &params).max(LEAST_NS);
        self.times = self.rows.iter().map(time).collect();
    }

    /// Derivatives of the operations' times, by the logarithm of each figure.
    fn slopes(&self, slopes: &mut DMatrix<f64>) {
        let mut column_of = vec![0; self.figures.len()];
        self.free.iter().enumerate().for_each(|(column, &at)| column_of[at] = column);
        let mut curved = vec![Vec::new(); self.free.len()];
        for (at, row) in self.rows.iter().enumerate() {
            let terms = &row.sample.terms;
            let Some(prices) = terms.linear() else {
                terms.figures().for_each(|figure| curved[column_of[figure]].push(at));
                continue;
            };
            for &(price, count) in prices {
                slopes[(at, column_of[price])] = count * self.values[price];
            }
        }
        for (column, rows) in curved.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let [below, above] = [-STEP, STEP].map(|step| {
                let mut values = self.values.clone();
                values[self.free[column]] *= step.exp();
                self.figures.params(&values)
            });
            for &at in rows {
                let ns = |params| self.rows[at].sample.terms.ns(&self.values, params);
                slopes[(at, column)] = (ns(&above) - ns(&below)) / (2.0 * STEP);
            }
        }
    }

    fn pull() -> f64 {
        PULL.sqrt() / LN_2
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Problem<'_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, away: &DVector<f64>) {
        self.away.copy_from(away);
        self.update();
    }

    fn params(&self) -> DVector<f64> {
        self.away.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        let operation = |(row, &time): (&Equation<'_>, &f64)| row.weight * robust(off(row, time)).0;
        let total = |total: &Total| {
            total.weight * (total.predicted_ns(&self.times) / total.recorded_ns).log2()
        };
        let mut all: Vec<f64> = self.rows.iter().zip(&self.times).map(operation).collect();
        all.extend(self.totals.iter().map(total));
        all.extend(self.away.iter().map(|away| away * Self::pull()));
        Some(DVector::from_vec(all))
    }

    #[allow(
        clippy::arithmetic_side_effects,
        reason = "lengths of lists that are in memory, and sums of doubles"
    )]
    fn jacobian(&self) -> Option<DMatrix<f64>> {
        let (rows, totals, columns) = (self.rows.len(), self.totals.len(), self.free.len());
        let mut jacobian = DMatrix::zeros(rows + totals + columns, columns);
        self.slopes(&mut jacobian);
        for (place, total) in self.totals.iter().enumerate() {
            let scale = total.weight / (total.predicted_ns(&self.times) * LN_2);
            for column in 0..columns {
                let change: f64 = total.rows.iter().map(|&row| jacobian[(row, column)]).sum();
                jacobian[(rows + place, column)] = change * scale;
            }
        }
        for (at, (row, &time)) in self.rows.iter().zip(&self.times).enumerate() {
            let slope = row.weight * robust(off(row, time)).1 / (time * LN_2);
            jacobian.row_mut(at).scale_mut(slope);
        }
        for column in 0..columns {
            jacobian[(rows + totals + column, column)] = Self::pull();
        }
        Some(jacobian)
    }
}

/// Octaves between a predicted time and the recorded one.
fn off(row: &Equation<'_>, time: f64) -> f64 {
    (time / row.sample.recorded.median as f64).log2()
}

/// The square root of the loss, and its derivative.
fn robust(off: f64) -> (f64, f64) {
    let bend = (1.0 + (off / TURN).powi(2)).sqrt();
    // The loss is 2 TURN^2 (bend - 1), and bend - 1 = (off / TURN)^2 / (bend + 1).
    let scale = (2.0 / (bend + 1.0)).sqrt();
    (off * scale, 1.0 / (bend * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_quadratic_at_first_and_linear_later() {
        let loss = |off: f64| robust(off).0.powi(2);
        assert!((loss(0.01) / 0.0001 - 1.0).abs() < 0.01);
        assert!((loss(80.0) / loss(40.0) - 2.0).abs() < 0.05);
        assert_eq!(robust(0.0), (0.0, 1.0));
    }

    #[test]
    fn the_derivative_of_the_loss_is_its_derivative() {
        for off in [-3.0, -0.2, 0.001, 0.25, 7.0] {
            let numerical = (robust(off + STEP).0 - robust(off - STEP).0) / (2.0 * STEP);
            assert!((robust(off).1 - numerical).abs() < 1e-6, "at {off}");
        }
    }
}
