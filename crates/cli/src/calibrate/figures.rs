//! The figures of a cost model as a list of numbers with names.
//!
//! Names and order come from the figures' serialized form, so that a new figure is fitted as soon
//! as it exists.

use pagewise_sim::CostParams;
use serde_json::Value;

/// Figures that are no prices: what they do to a time is no product.
const SHAPES: [&str; 3] =
    ["device_touch.fault_gap", "device_touch.gap_read", "device_touch.gap_write"];

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

    /// Whether a time is a sum of products with this figure.
    pub(crate) fn is_price(&self, at: usize) -> bool {
        !SHAPES.contains(&self.name(at))
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
        let figures = Figures::new(&CostParams::h200());
        assert_eq!(figures.params(&figures.values), CostParams::h200());
        let doubled: Vec<f64> = figures.values.iter().map(|value| value * 2.0).collect();
        let again = Figures::new(&figures.params(&doubled));
        assert_eq!(again.values, doubled);
    }

    #[test]
    fn the_figures_that_are_no_prices_exist() {
        let figures = Figures::new(&CostParams::h200());
        let shapes = (0..figures.len()).filter(|&at| !figures.is_price(at)).count();
        assert_eq!(shapes, SHAPES.len());
    }
}
