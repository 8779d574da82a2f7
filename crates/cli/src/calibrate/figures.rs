//! The figures of a cost model as a list of numbers with names.
//!
//! Names and order come from the figures' serialized form, so that a new figure is fitted as soon
//! as it exists.

use pagewise_sim::CostParams;
use serde_json::Value;

/// Figures that are no prices: what they do to a time is no product.
const SHAPES: [&str; 2] = ["device_touch.gap_read", "device_touch.gap_write"];

/// Only the ratios of the shapes to this figure show in times: it is their unit, and kept.
const UNIT: &str = "device_touch.fault_gap";

/// The effect of a figure on times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Times are sums of products with it.
    Price,
    /// It changes how often prices are paid.
    Shape,
    /// It changes nothing that others could not.
    Unit,
}

/// Figures, in a fixed order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figures {
    shape: Value,
    names: Vec<String>,
    pub(crate) values: Vec<f64>,
}

impl Figures {
    pub(crate) fn new(params: &CostParams) -> Self {
        let shape = serde_json::to_value(params).expect("figures are plain data");
        let mut figures = Self { names: Vec::new(), values: Vec::new(), shape };
        let (names, values) = (&mut figures.names, &mut figures.values);
        visit(&mut figures.shape, "", &mut |name, value| {
            names.push(name.to_owned());
            values.push(value.as_f64().expect("a figure is a number"));
        });
        figures
    }

    /// The figures with other values.
    pub(crate) fn params(&self, values: &[f64]) -> CostParams {
        let mut tree = self.shape.clone();
        let mut values = values.iter();
        visit(&mut tree, "", &mut |_, value| {
            *value = Value::from(*values.next().expect("a value for every figure"));
        });
        serde_json::from_value(tree).expect("the same shape")
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn name(&self, at: usize) -> &str {
        &self.names[at]
    }

    pub(crate) fn role(&self, at: usize) -> Role {
        match self.name(at) {
            UNIT => Role::Unit,
            name if SHAPES.contains(&name) => Role::Shape,
            _ => Role::Price,
        }
    }

    /// The figures with this role that are part of the model: a figure of 0 is not.
    pub(crate) fn with_role(&self, role: Role) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(move |&at| self.values[at] > 0.0 && self.role(at) == role)
    }
}

/// Goes through all numbers, in order.
fn visit(tree: &mut Value, name: &str, each: &mut impl FnMut(&str, &mut Value)) {
    let within =
        |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
    match tree {
        Value::Object(fields) => {
            for (field, value) in fields {
                visit(value, &within(field), each);
            }
        }
        Value::Array(elements) => {
            for (at, value) in elements.iter_mut().enumerate() {
                visit(value, &within(&at.to_string()), each);
            }
        }
        number => each(name, number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_survive_being_a_list() {
        let figures = Figures::new(&pagewise_sim::GpuProfile::h200().cost);
        assert_eq!(figures.params(&figures.values), pagewise_sim::GpuProfile::h200().cost);
        let doubled: Vec<f64> = figures.values.iter().map(|value| value * 2.0).collect();
        let again = Figures::new(&figures.params(&doubled));
        assert_eq!(again.values, doubled);
    }

    #[test]
    fn the_figures_that_are_no_prices_exist() {
        let figures = Figures::new(&pagewise_sim::GpuProfile::h200().cost);
        assert_eq!(figures.with_role(Role::Shape).count(), SHAPES.len());
        assert_eq!(figures.with_role(Role::Unit).count(), 1);
    }
}
