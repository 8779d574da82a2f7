//! Claims about the price of each class of calls: the figures in its time, and how many times each.
//!
//! A time is the sum of prices times counts. So the count of a figure is the time when this figure
//! is 1 and all others are 0, and a call is described completely by the counts that are not 0.

mod advice;
mod calls;
mod resources;
mod touches;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use pagewise_hal::Processor;
use toml::Value;

use super::account::{Account, Input};
use super::state::Warmth;
use super::*;
use crate::GpuProfile;
use crate::paging::{Covered, HeldBlocks, Walk, Work, WorkCause};

const WARM: Warmth = Warmth::Warm { pause_ns: 0, row: 1 };
const COLD: Warmth = Warmth::Cold { first: false };
const GPU: Option<Processor> = Some(Processor::device(0));

/// The figures of the model by their path, such as `prefetch.call`, with a value for each.
fn figures_of(value: &mut Value, path: String, visit: &mut dyn FnMut(&str, &mut Value)) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Table(table) => {
            table.iter_mut().for_each(|(key, value)| figures_of(value, below(key), visit));
        }
        Value::Array(array) => {
            let numbered = array.iter_mut().enumerate();
            numbered.for_each(|(n, value)| figures_of(value, below(&n.to_string()), visit));
        }
        figure => visit(&path, figure),
    }
}

/// Prices that are all 0 but one.
fn only(wanted: &str) -> CostParams {
    let mut value = Value::try_from(GpuProfile::h200().cost).expect("a document");
    figures_of(&mut value, String::new(), &mut |path, figure| {
        *figure = Value::Float(if path == wanted { 1.0 } else { 0.0 });
    });
    value.try_into().expect("the same document")
}

/// Prices that are all 0.
pub(super) fn nothing() -> CostParams {
    only("")
}

/// Each figure with prices that are all 0 but this one's.
static EACH: LazyLock<Vec<(String, CostParams)>> = LazyLock::new(|| {
    let mut paths = Vec::new();
    let mut value = Value::try_from(GpuProfile::h200().cost).expect("a document");
    figures_of(&mut value, String::new(), &mut |path, _| paths.push(path.to_owned()));
    assert!(paths.len() > 100, "all figures: {paths:?}");
    paths.into_iter().map(|path| (path.clone(), only(&path))).collect()
});

/// How many times each figure counts, where it does.
fn counts(ns: impl Fn(&CostParams) -> f64) -> BTreeMap<String, f64> {
    let counted = EACH.iter().map(|(path, params)| (path.clone(), ns(params)));
    counted.filter(|(_, count)| *count != 0.0).collect()
}

/// The figures of a call in which this happens.
fn priced(call: Call, warmth: Warmth, inputs: &[Input]) -> BTreeMap<String, f64> {
    counts(|params| {
        let mut account = Account::new(call, warmth);
        let at_once: f64 = inputs.iter().map(|input| account.count(params, input)).sum();
        at_once + account.rest(params)
    })
}

/// Figures of one class with their counts.
fn figures(class: &str, list: &[(&str, f64)]) -> BTreeMap<String, f64> {
    list.iter().map(|(figure, count)| (format!("{class}.{figure}"), *count)).collect()
}

fn both(a: BTreeMap<String, f64>, b: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    a.into_iter().chain(b).collect()
}

/// A migration with every count another number.
fn migration() -> Work {
    Work {
        cause: WorkCause::Migration,
        processor: GPU,
        copies: 2,
        pages_to_device: 3,
        pages_to_host: 5,
        pages_between_devices: 7,
        pages_zeroed_host: 11,
        zeroed_runs_device: 13,
        chunks_device: 17,
        unmaps_host: 19,
        unmaps_device: 23,
        blocks: 29,
        pages_unmapped_host: 31,
        pages_mapped_host: 37,
        pages_mapped_device: 41,
        ..Work::default()
    }
}

const PAGE: f64 = 4096.0;
