//! Declarations of variables and parameters.

use super::constant::{Value, integer, values};
use super::fault::Fault;
use super::lexer::{Lexer, Token};
use crate::image::parts::{Linkage, Relocation, Space, Variable};

/// A type of PTX, of which arrays and vectors are made.
#[derive(Debug, Clone, Copy)]
struct Scalar {
    bytes: u64,
    is_float: bool,
}

fn scalar(name: &str) -> Option<Scalar> {
    let bytes = match name {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
        "b64" | "u64" | "s64" | "f64" | "texref" | "samplerref" | "surfref" => 8,
        "b128" => 16,
        _ => return None,
    };
    Some(Scalar { bytes, is_float: name.starts_with('f') || name.starts_with("bf") })
}

/// The part of a declaration before its names.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Form {
    scalar: Option<Scalar>,
    lanes: Option<u64>,
    align: Option<u64>,
    is_managed: bool,
}

/// A name with the size of its array.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) align: u64,
    pub(super) bytes: u64,
    /// Whether the array has no size, and takes that of its values.
    is_open: bool,
}

/// The largest alignment that a declaration may ask for, in bytes.
const ALIGN_MAX: u64 = 1 << 20;

/// Reads attributes, alignment and type, up to the name.
pub(super) fn form(lexer: &mut Lexer<'_>) -> Result<Form, Fault> {
    let mut form = Form::default();
    while let Some(Token::Directive(name)) = lexer.peek()? {
        lexer.next()?;
        match name {
            "align" => {
                let align = integer(lexer)?;
                if !align.is_power_of_two() || align > ALIGN_MAX {
                    return Err(lexer.fault("an alignment must be a power of two"));
                }
                form.align = Some(align);
            }
            "attribute" => form.is_managed |= attribute(lexer)?,
            "v2" => form.lanes = Some(2),
            "v4" => form.lanes = Some(4),
            "v8" => form.lanes = Some(8),
            // A parameter's pointer: the space, and the alignment of what it points to.
            "ptr" => pointer(lexer)?,
            _ => match scalar(name) {
                Some(scalar) => form.scalar = Some(scalar),
                None => return Err(lexer.fault(format!("'.{name}' is no type"))),
            },
        }
    }
    if form.scalar.is_none() {
        return Err(lexer.fault("a declaration has no type"));
    }
    Ok(form)
}

/// Reads `(.managed)` and the like. The answer is whether the variable is managed memory.
fn attribute(lexer: &mut Lexer<'_>) -> Result<bool, Fault> {
    lexer.expect(b'(')?;
    let (mut is_managed, mut open) = (false, 1_u32);
    while open > 0 {
        match lexer.next()? {
            Some(Token::Directive("managed")) => is_managed = true,
            Some(Token::Sign(b'(')) => open = open.saturating_add(1),
            Some(Token::Sign(b')')) => open = open.saturating_sub(1),
            None => return Err(lexer.fault("an attribute has no end")),
            _ => {}
        }
    }
    Ok(is_managed)
}

fn pointer(lexer: &mut Lexer<'_>) -> Result<(), Fault> {
    while let Some(Token::Directive(name)) = lexer.peek()? {
        lexer.next()?;
        if name == "align" {
            integer(lexer)?;
        }
    }
    Ok(())
}

/// Reads a name and the size of its array.
pub(super) fn declared(lexer: &mut Lexer<'_>, form: Form) -> Result<Declared, Fault> {
    let name = lexer.word()?.to_owned();
    let scalar = form.scalar.map_or(0, |scalar| scalar.bytes);
    let element = scalar.saturating_mul(form.lanes.unwrap_or(1));
    let (mut bytes, mut is_open) = (element, false);
    while lexer.takes(b'[')? {
        let mut count = 0;
        if lexer.peek()? == Some(Token::Sign(b']')) {
            is_open = true;
        } else {
            count = integer(lexer)?;
        }
        lexer.expect(b']')?;
        bytes = bytes.checked_mul(count).ok_or_else(|| lexer.fault("an array is too large"))?;
    }
    Ok(Declared { name, align: form.align.unwrap_or(element).max(1), bytes, is_open })
}

/// Reads the variables of one declaration, up to its semicolon.
pub(super) fn variables(
    lexer: &mut Lexer<'_>,
    space: Space,
    linkage: Linkage,
) -> Result<Vec<Variable>, Fault> {
    let form = form(lexer)?;
    let mut found = Vec::new();
    loop {
        let Declared { name, align, mut bytes, is_open } = declared(lexer, form)?;
        let (mut contents, mut relocations) = (Vec::new(), Vec::new());
        if lexer.takes(b'=')? {
            let scalar = form.scalar.ok_or_else(|| lexer.fault("a declaration has no type"))?;
            let values = values(lexer)?;
            let given = (values.len() as u64).saturating_mul(scalar.bytes);
            if is_open {
                bytes = given;
            } else if given > bytes {
                return Err(lexer.fault(format!("'{name}' has more values than elements")));
            }
            (contents, relocations) = encode(values, scalar);
        }
        found.push(Variable {
            name,
            space,
            is_managed: form.is_managed,
            linkage,
            align,
            bytes,
            contents,
            relocations,
        });
        if !lexer.takes(b',')? {
            break;
        }
    }
    lexer.expect(b';')?;
    Ok(found)
}

/// The bytes of values, without zeros at the end, and the addresses among them.
fn encode(values: Vec<Value>, scalar: Scalar) -> (Vec<u8>, Vec<Relocation>) {
    let bytes = scalar.bytes as usize;
    let (mut contents, mut relocations) = (Vec::new(), Vec::new());
    for value in values {
        let offset = contents.len() as u64;
        let bits = match value {
            Value::Integer(integer) if scalar.is_float => {
                float_bits(integer.cast_signed() as f64, bytes)
            }
            Value::Integer(integer) => integer,
            Value::Single(bits) => match bytes {
                4 => u64::from(bits),
                _ => float_bits(f64::from(f32::from_bits(bits)), bytes),
            },
            Value::Double(number) => float_bits(number, bytes),
            Value::Address { symbol, addend, is_generic: _, mask } => {
                let shift = mask.map_or(0, u64::trailing_zeros).min(63);
                relocations.push(Relocation { offset, bytes, symbol, addend, shift });
                0
            }
        };
        let place = bits.to_le_bytes();
        contents.extend((0..bytes).map(|index| place.get(index).copied().unwrap_or_default()));
    }
    let used =
        contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
    contents.truncate(used);
    (contents, relocations)
}

/// The bits of a number in a type of this size. Numbers with 16 bits are written as bits in PTX.
fn float_bits(number: f64, bytes: usize) -> u64 {
    match bytes {
        8 => number.to_bits(),
        4 => u64::from((number as f32).to_bits()),
        _ => number as u64,
    }
}
