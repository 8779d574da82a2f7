//! The terms of an operation's time.

use pagewise_sim::{CostObservation, CostParams};

use super::figures::{Figures, Role};

/// The time of an operation, as a function of the figures.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Prices, and how often each is paid.
    prices: Vec<(usize, f64)>,
    /// If it depends on figures that are no prices: which, and the calls themselves. `prices` then
    /// says only which prices matter.
    curved: Option<Curved>,
}

#[derive(Debug)]
struct Curved {
    shapes: Vec<usize>,
    calls: Vec<CostObservation>,
}

impl Terms {
    /// The time with these figures, as a list and as what they stand for.
    pub(crate) fn ns(&self, values: &[f64], params: &CostParams) -> f64 {
        match &self.curved {
            None => self.prices.iter().map(|&(price, count)| values[price] * count).sum(),
            Some(curved) => sum_ns(&curved.calls, params),
        }
    }

    /// The prices and counts, if they say all.
    pub(crate) fn linear(&self) -> Option<&[(usize, f64)]> {
        self.curved.is_none().then_some(&*self.prices)
    }

    /// The figures that the time depends on.
    pub(crate) fn figures(&self) -> impl Iterator<Item = usize> + '_ {
        let shapes = self.curved.iter().flat_map(|curved| &curved.shapes);
        self.prices.iter().map(|&(price, _)| price).chain(shapes.copied())
    }
}

/// Finds out what times are made of: with one price of 1 and all others 0, a time is how often that
/// price is paid. Of figures that are no prices it only asks whether they do something.
#[derive(Debug)]
pub(crate) struct Probes {
    start: CostParams,
    /// Each price that is not 0, by its number, with figures in which all other prices are 0.
    prices: Vec<(usize, CostParams)>,
    /// Each figure that is no price, by its number, with figures in which it is doubled.
    shapes: Vec<(usize, CostParams)>,
}

impl Probes {
    pub(crate) fn new(figures: &Figures) -> Self {
        let alone = |at: usize| {
            let value = |other: usize| match other {
                _ if figures.role(other) != Role::Price => figures.values[other],
                _ => f64::from(u8::from(other == at)),
            };
            (at, figures.params(&(0..figures.len()).map(value).collect::<Vec<f64>>()))
        };
        let doubled = |at: usize| {
            let mut values = figures.values.clone();
            values[at] *= 2.0;
            (at, figures.params(&values))
        };
        Self {
            start: figures.params(&figures.values),
            prices: figures.with_role(Role::Price).map(alone).collect(),
            shapes: figures.with_role(Role::Shape).map(doubled).collect(),
        }
    }

    pub(crate) fn terms(&self, calls: Vec<CostObservation>) -> Terms {
        let time = sum_ns(&calls, &self.start);
        let paid = self.prices.iter().map(|(price, alone)| (*price, sum_ns(&calls, alone)));
        let prices = paid.filter(|&(_, count)| count > 0.0).collect();
        let matters = self.shapes.iter().filter(|(_, doubled)| sum_ns(&calls, doubled) != time);
        let shapes: Vec<usize> = matters.map(|&(shape, _)| shape).collect();
        Terms { prices, curved: (!shapes.is_empty()).then_some(Curved { shapes, calls }) }
    }
}

fn sum_ns(calls: &[CostObservation], params: &CostParams) -> f64 {
    calls.iter().map(|call| call.ns(params)).sum()
}
