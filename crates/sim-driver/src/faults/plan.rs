//! Fault plans: documents (TOML) that say which calls fail or take longer.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::path::Path;

use pagewise_hal::{Location, LocationKind, code_name};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use toml::Spanned;

/// The longest plan.
const BYTES_MAX: u64 = 1 << 20;

/// The most rules of a plan: each call looks at all.
const RULES_MAX: usize = 4096;

/// The code of a lost device if the plan names none: `CUDA_ERROR_LAUNCH_FAILED`, after which a
/// process can only end.
const LOST: i32 = 719;

/// Which calls fail or take longer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Plan {
    pub(crate) rules: Vec<Rule>,
    /// Allocations fail that would take the live memory of the program beyond this.
    pub(crate) memory_limit_bytes: Option<u64>,
}

/// One rule: which calls it is for, which of them it strikes, and what happens to those.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    /// Where the plan has it, from 1; 0 if it is from no plan.
    pub(crate) line: usize,
    /// A function, in all its forms, or the symbol of one form.
    pub(crate) call: Option<String>,
    bytes: RangeInclusive<u64>,
    place: Option<Place>,
    when: When,
    pub(crate) what: What,
}

/// The effect of a rule on the calls that it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The call returns this `CUresult` and does nothing. If the device is lost with it, all later
    /// calls return it, too.
    Fail { code: i32, loses_device: bool },
    /// The call takes so much longer, in simulated nanoseconds.
    Delay(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Nth(u64),
    Always,
    Random { seed: u64, per_thousand: u32 },
}

impl Rule {
    /// The call of one function with this number, from 0, returns this `CUresult`.
    pub(crate) fn nth(call: &str, nth: u64, code: i32) -> Self {
        Self {
            line: 0,
            call: Some(call.to_owned()),
            bytes: 0..=u64::MAX,
            place: None,
            when: When::Nth(nth),
            what: What::Fail { code, loses_device: false },
        }
    }

    /// Whether the rule asks for more than the name of the entry point.
    pub(crate) fn looks_inside(&self) -> bool {
        self.place.is_some() || self.bytes != (0..=u64::MAX)
    }

    /// Whether the rule is for a call about so many bytes and this place.
    pub(crate) fn is_for(&self, bytes: u64, location: Option<Location>) -> bool {
        // A call about no memory has no size: a rule for small calls does not mean it.
        let has_size = bytes > 0 || self.bytes == (0..=u64::MAX);
        let is_there = |place: Place| location.is_some_and(|location| place.has(location));
        has_size && self.bytes.contains(&bytes) && self.place.is_none_or(is_there)
    }

    /// Whether the rule strikes the call that matches it after so many others.
    pub(crate) fn strikes(&self, nth: u64) -> bool {
        match self.when {
            When::Nth(n) => n == nth,
            When::Always => true,
            When::Random { seed, per_thousand } => mix(seed, nth) % 1000 < u64::from(per_thousand),
        }
    }
}

/// A number that looks random (the finalizer of SplitMix64: Steele, Lea and Flood, 2014). The same
/// calls fail as with `pagewise::inject::Fault::seeded`.
const fn mix(seed: u64, nth: u64) -> u64 {
    let mut z = seed.wrapping_add(nth.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A place that a call names: the host, any device, or one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Place {
    Host,
    AnyDevice,
    Device(i32),
}

impl Place {
    fn has(self, location: Location) -> bool {
        match self {
            Self::Host => location.kind != LocationKind::DEVICE,
            Self::AnyDevice => location.kind == LocationKind::DEVICE,
            Self::Device(id) => location.kind == LocationKind::DEVICE && location.id == id,
        }
    }
}

impl TryFrom<String> for Place {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let place = match text.split_once(':') {
            None if text == "host" => Some(Self::Host),
            None if text == "device" => Some(Self::AnyDevice),
            Some(("device", id)) => id.parse().ok().map(Self::Device),
            _ => None,
        };
        place.ok_or("place: expected \"host\", \"device\" or a device such as \"device:0\"")
    }
}

/// A `CUresult`, by its number or its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Code(i32);

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfCode;
        impl Visitor<'_> for OfCode {
            type Value = Code;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a CUresult but 0: its number or its name in cuda.h")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Code, E> {
                let code = i32::try_from(number).ok().filter(|code| *code > 0);
                code.map(Code)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Code, E> {
                let found = (1..=999).find(|code| code_name(*code) == Some(name));
                found.map(Code).ok_or_else(|| E::invalid_value(de::Unexpected::Str(name), &self))
            }
        }
        deserializer.deserialize_any(OfCode)
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Random {
    seed: u64,
    per_thousand: u32,
}

/// A rule as the document has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    call: Option<String>,
    at_least_bytes: Option<u64>,
    at_most_bytes: Option<u64>,
    place: Option<Place>,
    nth: Option<u64>,
    always: Option<bool>,
    random: Option<Random>,
    code: Option<Code>,
    lost: Option<bool>,
    delay_ns: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    memory_limit_bytes: Option<u64>,
    #[serde(default)]
    fault: Vec<Spanned<Row>>,
}

impl Row {
    fn rule(self, line: usize) -> Result<Rule, String> {
        let what = self.what()?;
        let when = self.when(what)?;
        let bytes = self.at_least_bytes.unwrap_or(0)..=self.at_most_bytes.unwrap_or(u64::MAX);
        if bytes.is_empty() {
            return Err("at_least_bytes is more than at_most_bytes".to_owned());
        }
        Ok(Rule { line, call: self.call, bytes, place: self.place, when, what })
    }

    fn what(&self) -> Result<What, String> {
        let loses_device = self.lost == Some(true);
        match (self.code, self.delay_ns) {
            (Some(Code(code)), None) => Ok(What::Fail { code, loses_device }),
            (None, None) if loses_device => Ok(What::Fail { code: LOST, loses_device }),
            (None, Some(ns)) if self.lost.is_none() => Ok(What::Delay(ns)),
            _ => Err("expected code, lost = true, or delay_ns".to_owned()),
        }
    }

    /// Without a word about it, a failure is of the first call and a delay of all.
    fn when(&self, what: What) -> Result<When, String> {
        match (self.nth, self.always, self.random) {
            (Some(nth), None, None) => Ok(When::Nth(nth)),
            (None, Some(true), None) => Ok(When::Always),
            (None, None, Some(Random { seed, per_thousand })) if per_thousand <= 1000 => {
                Ok(When::Random { seed, per_thousand })
            }
            (None, None, Some(_)) => Err("random: expected per_thousand up to 1000".to_owned()),
            (None, None | Some(false), None) => Ok(match what {
                What::Fail { .. } => When::Nth(0),
                What::Delay(_) => When::Always,
            }),
            _ => Err("expected one of nth, always = true and random".to_owned()),
        }
    }
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// If there is no such file, or it is no plan: the text names the file, and the line with the
    /// key or rule that is wrong.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let named = |why: String| format!("{}: {why}", path.display());
        let mut text = String::new();
        let file = File::open(path).map_err(|error| named(error.to_string()))?;
        // One byte more than a plan has tells that there are too many.
        let read = file.take(BYTES_MAX.saturating_add(1)).read_to_string(&mut text);
        read.map_err(|error| named(error.to_string()))?;
        if text.len() as u64 > BYTES_MAX {
            return Err(named(format!("a plan has at most {BYTES_MAX} bytes")));
        }
        Self::parse(&text).map_err(named)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let document: Document = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut plan = Self { rules: Vec::new(), memory_limit_bytes: document.memory_limit_bytes };
        if document.fault.len() > RULES_MAX {
            return Err(format!("a plan has at most {RULES_MAX} faults"));
        }
        for row in document.fault {
            let before = text.get(..row.span().start).unwrap_or_default();
            let line = before.matches('\n').count().saturating_add(1);
            let rule = row.into_inner().rule(line);
            plan.rules.push(rule.map_err(|why| format!("line {line}: fault: {why}"))?);
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_failures_delays_and_a_limit() {
        let text = "memory_limit_bytes = 4096\n\
                    [[fault]]\ncall = \"cuMemAlloc\"\nnth = 2\ncode = \"CUDA_ERROR_OUT_OF_MEMORY\"\n\
                    [[fault]]\nplace = \"device:1\"\nat_least_bytes = 10\nlost = true\n\
                    [[fault]]\ndelay_ns = 5\n";
        let plan = Plan::parse(text).unwrap();
        assert_eq!(plan.memory_limit_bytes, Some(4096));
        let what: Vec<What> = plan.rules.iter().map(|rule| rule.what).collect();
        let fail = |code, loses_device| What::Fail { code, loses_device };
        assert_eq!(what, [fail(2, false), fail(719, true), What::Delay(5)]);
        assert_eq!(plan.rules[1].line, 6);
        assert!(!plan.rules[0].looks_inside() && plan.rules[1].looks_inside());
        assert!(plan.rules[0].strikes(2) && !plan.rules[0].strikes(0));
        assert!(plan.rules[1].strikes(0) && !plan.rules[1].strikes(1));
        assert!(plan.rules[2].strikes(0) && plan.rules[2].strikes(7));
    }

    #[test]
    fn a_rule_is_for_calls_of_its_sizes_and_its_place() {
        let rule = |text: &str| Plan::parse(&format!("[[fault]]\ncode=1\n{text}")).unwrap().rules;
        let device = |id| Some(Location::device(pagewise_hal::DeviceId(id)));
        let small = &rule("at_most_bytes = 8")[0];
        assert!(small.is_for(8, None) && !small.is_for(9, None) && !small.is_for(0, None));
        let host = &rule("place = 'host'")[0];
        assert!(host.is_for(0, Some(Location::HOST)) && !host.is_for(0, device(0)));
        assert!(!host.is_for(0, None));
        let second = &rule("place = 'device:1'")[0];
        assert!(second.is_for(3, device(1)) && !second.is_for(3, device(0)));
        assert!(rule("place = 'device'")[0].is_for(3, device(5)));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, wanted) in [
            ("colour = 1", 1, "unknown field `colour`"),
            ("[[fault]]\ncode = 2\ncolour = 1", 3, "unknown field `colour`"),
            ("[[fault]]\ncode = 'CUDA_OOPS'", 2, "CUresult"),
            ("[[fault]]\ncode = 0", 2, "CUresult"),
            ("\n[[fault]]\nnth = 1", 2, "expected code"),
            ("[[fault]]\ncode = 2\ndelay_ns = 1", 1, "expected code"),
            ("[[fault]]\ncode = 2\nnth = 1\nalways = true", 1, "one of nth"),
            ("[[fault]]\ncode = 2\nplace = 'mars'", 3, "device:0"),
            ("[[fault]]\ncode = 2\nat_least_bytes = -1", 3, "u64"),
            ("[[fault]]\ncode = 2\nat_least_bytes = 2\nat_most_bytes = 1", 1, "more than"),
            ("[[fault]]\ncode = 2\nrandom = { seed = 1, per_thousand = 1001 }", 1, "up to 1000"),
        ] {
            let error = Plan::parse(text).unwrap_err();
            assert!(error.contains(&format!("line {line}")), "{text}: {error}");
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn a_plan_that_is_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        std::fs::write(&path, "# long\n".repeat(1 << 18)).unwrap();
        assert!(Plan::read(&path).unwrap_err().contains("at most 1048576 bytes"));
        std::fs::write(&path, "[[fault]]\ncode = 2\n".repeat(RULES_MAX + 1)).unwrap();
        assert!(Plan::read(&path).unwrap_err().contains("at most 4096 faults"));
        assert!(Plan::read(&folder.path().join("none")).unwrap_err().contains("none"));
    }
}
