//! The values of arguments, from their text.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use pagewise_hal::{DriverVersion, code_name};
use pagewise_trace::program::Family;

use crate::standard::is_standard;

/// `10G` is ten thousand million.
pub(super) fn work(text: &str) -> Result<u64, String> {
    scaled(text, 1000)
}

/// `16G` is 16 GiB.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    scaled(text, 1024)
}

/// `0` is no limit.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number of seconds, such as 600 or 0.5; 0 is no limit".to_owned();
    let seconds = text.parse().map_err(|_| wrong())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(Duration::ZERO) if seconds == 0.0 => Ok(Duration::MAX),
        Ok(limit) => Ok(limit),
        Err(_) => Err(wrong()),
    }
}

fn scaled(text: &str, step: u64) -> Result<u64, String> {
    let suffixes = [('k', 1), ('M', 2), ('G', 3), ('T', 4)];
    let split = suffixes.iter().find_map(|&(suffix, power)| {
        Some((text.strip_suffix(suffix)?, step.saturating_pow(power)))
    });
    let (number, scale) = split.unwrap_or((text, 1));
    match number.parse::<u64>() {
        Ok(number) => Ok(number.saturating_mul(scale)),
        Err(_) => Err("expected an integer, with k, M, G or T behind it or without".to_owned()),
    }
}

/// A `CUresult` but 0: its number, or its name in `cuda.h`.
pub(super) fn code(text: &str) -> Result<i32, String> {
    let number = text.parse().ok().filter(|code| *code > 0);
    let named = || (1..=999).find(|code| code_name(*code) == Some(text));
    number.or_else(named).ok_or_else(|| "expected a CUresult such as 2 or its name".to_owned())
}

/// `12.2`
pub(super) fn version(text: &str) -> Result<DriverVersion, String> {
    let number = |text: &str| text.parse::<i32>().ok().filter(|number| (0..100).contains(number));
    let parts = text
        .split_once('.')
        .and_then(|(major, minor)| Some(DriverVersion::new(number(major)?, number(minor)?)));
    match parts {
        Some(version) if version >= DriverVersion::CUDA_12_0 => Ok(version),
        _ => Err("expected a version of CUDA from 12.0 on, such as 12.2".to_owned()),
    }
}

/// At least 0.
pub(super) fn limit(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(limit) if limit.is_finite() && limit >= 0.0 => Ok(limit),
        _ => Err("expected a number of at least 0".to_owned()),
    }
}

/// The families of random programs, each with a line of help.
pub(super) fn family() -> impl TypedValueParser<Value = Family> {
    let values = Family::ALL.map(|family| PossibleValue::new(family.name()).help(family.about()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Family>())
}

/// A file that is written beside the answer, which has stdout for itself.
pub(super) fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match is_standard(&path) {
        true => Err("stdout is for the answer: give a file; one of this name is `./-`"),
        false => Ok(path),
    })
}
