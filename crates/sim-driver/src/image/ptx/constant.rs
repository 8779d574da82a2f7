//! Constants of PTX: sizes of arrays, and what variables begin with.

use super::fault::Fault;
use super::lexer::{Lexer, Token};

/// An initial value of a variable's element.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Integer(u64),
    Single(u32),
    Double(f64),
    /// The address of a variable or function, plus bytes. One byte of it may be chosen by a mask.
    Address {
        symbol: String,
        addend: u64,
        is_generic: bool,
        mask: Option<u64>,
    },
}

/// The deepest nesting of parentheses and braces.
const DEPTH_MAX: usize = 64;

/// Operators by how tightly they bind, the loosest first.
const OPERATORS: [&[&[u8]]; 6] =
    [&[b"|"], &[b"^"], &[b"&"], &[b"<<", b">>"], &[b"+", b"-"], &[b"*", b"/", b"%"]];

/// Reads an integer expression.
pub(super) fn integer(lexer: &mut Lexer<'_>) -> Result<u64, Fault> {
    binary(lexer, 0, 0)
}

fn binary(lexer: &mut Lexer<'_>, level: usize, depth: usize) -> Result<u64, Fault> {
    let Some(operators) = OPERATORS.get(level) else { return unary(lexer, depth) };
    let tighter = level.saturating_add(1);
    let mut value = binary(lexer, tighter, depth)?;
    while let Some(operator) = operator(lexer, operators)? {
        let right = binary(lexer, tighter, depth)?;
        let shift = u32::try_from(right).unwrap_or(u32::MAX);
        value = match operator {
            b'|' => value | right,
            b'^' => value ^ right,
            b'&' => value & right,
            b'<' => value.checked_shl(shift).unwrap_or(0),
            b'>' => value.checked_shr(shift).unwrap_or(0),
            b'+' => value.wrapping_add(right),
            b'-' => value.wrapping_sub(right),
            b'*' => value.wrapping_mul(right),
            b'/' => value.checked_div(right).ok_or_else(|| lexer.fault("division by zero"))?,
            _ => value.checked_rem(right).ok_or_else(|| lexer.fault("division by zero"))?,
        };
    }
    Ok(value)
}

/// Takes one of some operators, and gives its first character.
fn operator(lexer: &mut Lexer<'_>, operators: &[&[u8]]) -> Result<Option<u8>, Fault> {
    for operator in operators {
        let &[first, ref rest @ ..] = *operator else { continue };
        if !lexer.takes(first)? {
            continue;
        }
        if let Some(&second) = rest.first() {
            lexer.expect(second)?;
        }
        return Ok(Some(first));
    }
    Ok(None)
}

fn unary(lexer: &mut Lexer<'_>, depth: usize) -> Result<u64, Fault> {
    if depth > DEPTH_MAX {
        return Err(lexer.fault("an expression is nested too deeply"));
    }
    let deeper = depth.saturating_add(1);
    match lexer.next()? {
        Some(Token::Integer(value)) => Ok(value),
        Some(Token::Sign(b'(')) => {
            let value = binary(lexer, 0, deeper)?;
            lexer.expect(b')')?;
            Ok(value)
        }
        Some(Token::Sign(b'-')) => unary(lexer, deeper).map(u64::wrapping_neg),
        Some(Token::Sign(b'+')) => unary(lexer, deeper),
        Some(Token::Sign(b'~')) => unary(lexer, deeper).map(|value| !value),
        Some(Token::Sign(b'!')) => unary(lexer, deeper).map(|value| u64::from(value == 0)),
        _ => Err(lexer.fault("expected an integer")),
    }
}

/// Reads what a variable begins with: one value, or values in braces, in the order of the elements.
pub(super) fn values(lexer: &mut Lexer<'_>) -> Result<Vec<Value>, Fault> {
    let (mut values, mut open) = (Vec::new(), 0_usize);
    loop {
        while lexer.takes(b'{')? {
            open = open.saturating_add(1);
            if open > DEPTH_MAX {
                return Err(lexer.fault("braces are nested too deeply"));
            }
        }
        if lexer.peek()? != Some(Token::Sign(b'}')) {
            values.push(value(lexer)?);
        }
        while open > 0 && lexer.takes(b'}')? {
            open = open.saturating_sub(1);
        }
        if open == 0 {
            return Ok(values);
        }
        if lexer.peek()? != Some(Token::Sign(b'}')) {
            lexer.expect(b',')?;
        }
    }
}

fn value(lexer: &mut Lexer<'_>) -> Result<Value, Fault> {
    match lexer.peek()? {
        Some(Token::Single(bits)) => {
            lexer.next()?;
            Ok(Value::Single(bits))
        }
        Some(Token::Double(number)) => {
            lexer.next()?;
            Ok(Value::Double(number))
        }
        Some(Token::Word(_)) => address(lexer, None),
        Some(Token::Sign(b'-')) => {
            lexer.next()?;
            Ok(match lexer.peek()? {
                Some(Token::Double(number)) => {
                    lexer.next()?;
                    Value::Double(-number)
                }
                _ => Value::Integer(unary(lexer, 0)?.wrapping_neg()),
            })
        }
        _ => {
            let value = integer(lexer)?;
            // A mask before parentheses chooses a byte of an address.
            if lexer.takes(b'(')? {
                let masked = address(lexer, Some(value))?;
                lexer.expect(b')')?;
                return Ok(masked);
            }
            Ok(Value::Integer(value))
        }
    }
}

/// Reads `symbol`, `symbol+bytes` or `generic(symbol)+bytes`.
fn address(lexer: &mut Lexer<'_>, mask: Option<u64>) -> Result<Value, Fault> {
    let mut symbol = lexer.word()?;
    let is_generic = symbol == "generic" && lexer.takes(b'(')?;
    if is_generic {
        symbol = lexer.word()?;
        lexer.expect(b')')?;
    }
    let addend = if lexer.takes(b'+')? {
        unary(lexer, 0)?
    } else if lexer.takes(b'-')? {
        unary(lexer, 0)?.wrapping_neg()
    } else {
        0
    };
    Ok(Value::Address { symbol: symbol.to_owned(), addend, is_generic, mask })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_bind_as_in_c() {
        for (text, value) in [
            ("1+2*3", 7),
            ("(1+2)*3", 9),
            ("1<<4|2", 18),
            ("-1&0xFF", 255),
            ("~0>>60", 15),
            ("7 % 4", 3),
        ] {
            assert_eq!(integer(&mut Lexer::new(text.as_bytes())).ok(), Some(value), "{text}");
        }
        for wrong in ["", "1/0", "(1", "*"] {
            assert!(integer(&mut Lexer::new(wrong.as_bytes())).is_err(), "{wrong}");
        }
        let deep = "(".repeat(100_000);
        assert!(integer(&mut Lexer::new(deep.as_bytes())).is_err());
    }

    #[test]
    fn values_are_numbers_and_addresses_in_any_braces() {
        let text = b"{{1, -2}, {0f3F800000, generic(a)+8}, 0xFF00(b), {}}";
        let address = |symbol: &str, addend, is_generic, mask| Value::Address {
            symbol: symbol.to_owned(),
            addend,
            is_generic,
            mask,
        };
        let found = values(&mut Lexer::new(text)).ok();
        let expected = [
            Value::Integer(1),
            Value::Integer(2_u64.wrapping_neg()),
            Value::Single(0x3F80_0000),
            address("a", 8, true, None),
            address("b", 0, false, Some(0xFF00)),
        ];
        assert_eq!(found.as_deref(), Some(&expected[..]));
        assert!(values(&mut Lexer::new(b"{1, 2")).is_err());
    }
}
