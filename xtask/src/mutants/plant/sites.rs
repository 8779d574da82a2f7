//! The text that is written where mutants are planted.

use crate::mutants::list::Number;
use crate::mutants::text::{Bytes, Rewrite};

/// The call that says whether a mutant is chosen.
pub(super) fn switch(number: Number) -> String {
    format!("crate::mutant::is({number})")
}

/// A place in the source, and the mutants there.
#[derive(Debug)]
pub(super) enum Site {
    /// The beginning of a function's body, and the values that it may return at once.
    Body { at: usize, values: Vec<(Number, String)> },
    /// Two operands with an operator that evaluates both, which others may replace.
    Binary { left: Bytes, operator: String, right: Bytes, others: Vec<(Number, String)> },
    /// `&&` or `||`, each replaced by the other.
    Lazy { left: Bytes, is_and: bool, right: Bytes, other: Number },
    /// An operator before its operand, which may be left out.
    Unary { at: usize, operator: String, operand: Bytes, without: Number },
    /// The condition of a match arm, between its pattern and `=>`.
    Arm { between: Bytes, condition: Option<Bytes>, changes: ArmChanges },
    /// A struct expression with a base, from which fields may be left out.
    Struct {
        bytes: Bytes,
        path: Bytes,
        fields: Vec<Bytes>,
        base: Bytes,
        without: Vec<(Number, usize)>,
    },
}

/// The changes that mutants make to a match arm.
#[derive(Debug, Default)]
pub(super) struct ArmChanges {
    pub(super) left_out: Option<Number>,
    pub(super) always: Option<Number>,
    pub(super) never: Option<Number>,
}

impl Rewrite for Site {
    fn bytes(&self) -> Bytes {
        match self {
            Self::Body { at, .. } => *at..*at,
            Self::Binary { left, right, .. } | Self::Lazy { left, right, .. } => {
                left.start..right.end
            }
            Self::Unary { at, operand, .. } => *at..operand.end,
            Self::Arm { between, .. } => between.clone(),
            Self::Struct { bytes, .. } => bytes.clone(),
        }
    }

    fn write(&self, render: &dyn Fn(&Bytes) -> String) -> String {
        match self {
            Self::Body { values, .. } => {
                let value = |(number, value): &(Number, String)| {
                    format!("\nif {} {{ return {value}; }}\n", switch(*number))
                };
                values.iter().map(value).collect()
            }
            Self::Binary { left, operator, right, others } => {
                binary(&render(left), operator, &render(right), others)
            }
            Self::Lazy { left, is_and, right, other } => {
                let (left, right, is) = (render(left), render(right), switch(*other));
                let [then, otherwise] =
                    if *is_and { [right, is.clone()] } else { [format!("!{is}"), right] };
                format!("(if ({left}) !=\n{is}\n{{ {then} }} else {{ {otherwise} }})")
            }
            Self::Unary { operator, operand, without, .. } => {
                let chosen =
                    choice(&[(*without, "mutant_v".to_owned())], &format!("{operator}mutant_v"));
                format!("(match ({}) {{ mutant_v =>\n{chosen} }})", render(operand))
            }
            Self::Arm { condition, changes, .. } => arm(condition.as_ref().map(render), changes),
            Self::Struct { bytes: _, path, fields, base, without } => {
                let with = |left_out: Option<usize>| {
                    let kept = fields.iter().enumerate().filter(|(n, _)| Some(*n) != left_out);
                    let kept: String = kept.map(|(_, field)| render(field) + ", ").collect();
                    format!("{} {{ {kept}..{} }}", render(path), render(base))
                };
                let others: Vec<_> = without.iter().map(|&(id, n)| (id, with(Some(n)))).collect();
                format!("({})", choice(&others, &with(None)))
            }
        }
    }
}

/// A chain of `if`, one line for each change.
fn choice(changes: &[(Number, String)], unchanged: &str) -> String {
    let one =
        |(number, text): &(Number, String)| format!("if {} {{ {text} }}\nelse ", switch(*number));
    let changes: String = changes.iter().map(one).collect();
    format!("{changes}{{ {unchanged} }}")
}

/// Operands are evaluated once, in their order; an assignment's place after its value, as it is
/// with numbers.
fn binary(left: &str, operator: &str, right: &str, others: &[(Number, String)]) -> String {
    let is_comparison = matches!(operator, "==" | "!=" | "<" | "<=" | ">" | ">=");
    let assigns = operator.ends_with('=') && !is_comparison;
    let (head, l, r) = if assigns {
        (format!("({right}) {{ mutant_r"), left, "mutant_r")
    } else if is_comparison {
        // A comparison takes its operands by reference, whatever they are.
        (format!("(&({left}), &({right})) {{ (mutant_l, mutant_r)"), "*mutant_l", "*mutant_r")
    } else {
        (format!("({left}, {right}) {{ (mutant_l, mutant_r)"), "mutant_l", "mutant_r")
    };
    let with = |operator: &str| format!("{l} {operator} {r}");
    let others: Vec<_> = others.iter().map(|(n, other)| (*n, with(other))).collect();
    format!("(match {head} =>\n{} }})", choice(&others, &with(operator)))
}

fn arm(condition: Option<String>, changes: &ArmChanges) -> String {
    let mut all = Vec::new();
    for number in [changes.left_out, changes.never].into_iter().flatten() {
        all.push(format!("!{}", switch(number)));
    }
    let condition = condition.map(|condition| match changes.always {
        Some(number) => format!("({}\n|| ({condition}))", switch(number)),
        None => format!("({condition})"),
    });
    all.extend(condition);
    format!("\nif {}\n", all.join("\n&& "))
}
