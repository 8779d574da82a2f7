//! The instruction of a form, taken apart.

use pagewise_ptx::math::Rounding;

/// A function from the operands of a form to its results.
pub(crate) type Function = Box<dyn Fn(&[u64]) -> Vec<u64>>;

/// A form of one instruction, or of one that sets a predicate, which a second turns into a number.
pub(crate) struct Instruction {
    /// Name and modifiers, without the point between them.
    parts: Vec<String>,
    /// The operands as they are written.
    pub(crate) arguments: Vec<String>,
    /// Whether the result is a predicate.
    pub(crate) predicate: bool,
}

impl Instruction {
    pub(crate) fn parse(body: &str) -> Option<Self> {
        let body = body.split(" //").next()?;
        let all: Vec<_> = body.split_terminator(';').map(str::trim).collect();
        let selects = ["selp.u32 d0, 1, 0, p", "selp.u32 d1, 1, 0, q"];
        let (first, rest) = all.split_first()?;
        let predicate = !rest.is_empty();
        if rest.len() > 2 || rest.iter().zip(selects).any(|(one, select)| *one != select) {
            return None;
        }
        let (name, arguments) = first.split_once(' ')?;
        if predicate && !name.starts_with("setp") && !name.starts_with("testp") {
            return None;
        }
        Some(Self {
            parts: name.split('.').map(str::to_owned).collect(),
            arguments: arguments.split(", ").map(str::to_owned).collect(),
            predicate,
        })
    }

    /// The first word.
    pub(crate) fn name(&self) -> &str {
        &self.parts[0]
    }

    /// A word, counted from 0.
    pub(crate) fn part(&self, index: usize) -> &str {
        self.parts.get(index).map_or("", String::as_str)
    }

    /// The last word: the type.
    pub(crate) fn kind(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }

    /// The last word but one.
    pub(crate) fn before_kind(&self) -> &str {
        self.parts.len().checked_sub(2).map_or("", |index| self.part(index))
    }

    /// Whether a modifier is there.
    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.parts.iter().any(|part| part == modifier)
    }

    /// The rounding, if the instruction names one.
    pub(crate) fn rounding(&self) -> Option<Rounding> {
        let of = |part: &String| match part.as_str() {
            "rn" | "rni" => Some(Rounding::Nearest),
            "rz" | "rzi" => Some(Rounding::Zero),
            "rm" | "rmi" => Some(Rounding::Down),
            "rp" | "rpi" => Some(Rounding::Up),
            "rna" => Some(Rounding::NearestAway),
            _ => None,
        };
        self.parts.iter().find_map(of)
    }
}

/// A function of one result.
pub(crate) fn one(function: impl Fn(&[u64]) -> u64 + 'static) -> Option<Function> {
    Some(Box::new(move |operands| vec![function(operands)]))
}
