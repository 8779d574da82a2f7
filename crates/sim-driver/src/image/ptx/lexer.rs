//! Tokens of PTX text.

use super::fault::Fault;

/// A piece of PTX text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'a> {
    /// A directive or a part of an instruction's name, without its dot.
    Directive(&'a str),
    /// A name, with its `%` if it has one.
    Word(&'a str),
    /// An integer; negative ones are a sign and an integer.
    Integer(u64),
    /// A number with a fraction or an exponent, or the bits of one with 64 bits.
    Double(f64),
    /// The bits of a number with 32 bits.
    Single(u32),
    /// Text in quotes.
    Text,
    /// Any other character.
    Sign(u8),
}

/// How far [`Lexer::ahead`] looks.
const AHEAD_BYTES: usize = 512;

/// Cuts text into tokens.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
    peeked: Option<Option<Token<'a>>>,
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, line: 1, peeked: None }
    }

    /// The same place in a text that ends soon: for looking ahead without passing over much.
    pub(super) fn ahead(&self) -> Self {
        let end = self.text.len().min(self.at.saturating_add(AHEAD_BYTES));
        Self { text: self.text.get(..end).unwrap_or_default(), ..self.clone() }
    }

    /// The line of the next byte, from 1 on.
    pub(super) const fn line(&self) -> usize {
        self.line
    }

    /// A fault at this place.
    pub(super) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::syntax(self.line, what)
    }

    /// Bytes before the next token.
    pub(super) const fn position(&self) -> usize {
        self.at
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at.checked_add(ahead)?).copied()
    }

    /// Moves past bytes that belong together.
    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| !belongs(*byte)).unwrap_or(rest.len());
        self.skip(length);
        rest.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes).min(self.text.len());
    }

    /// Moves to the first byte behind a pattern, counting lines.
    fn skip_past(&mut self, end: &[u8]) -> Result<(), Fault> {
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(&byte) = rest.first() else {
                return Err(self.fault("a comment or text in quotes has no end"));
            };
            if rest.starts_with(end) {
                self.skip(end.len());
                return Ok(());
            }
            self.line = self.line.saturating_add(usize::from(byte == b'\n'));
            // A quote after a backslash is part of the text.
            self.skip(if byte == b'\\' && end == b"\"" { 2 } else { 1 });
        }
    }

    fn skip_line(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.skip(rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()));
    }

    fn skip_space(&mut self) -> Result<(), Fault> {
        while let Some(byte) = self.byte(0) {
            match (byte, self.byte(1)) {
                (b'\n', _) => {
                    self.line = self.line.saturating_add(1);
                    self.skip(1);
                }
                (b' ' | b'\t' | b'\r' | 0x0B | 0x0C, _) => self.skip(1),
                (b'/', Some(b'/')) | (b'#', _) | (b'@', Some(b'@')) => self.skip_line(),
                (b'/', Some(b'*')) => {
                    self.skip(2);
                    self.skip_past(b"*/")?;
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// The next token, which stays; `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<Token<'a>>, Fault> {
        if self.peeked.is_none() {
            self.peeked = Some(self.read()?);
        }
        Ok(self.peeked.flatten())
    }

    /// The next token; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Token<'a>>, Fault> {
        let token = self.peek()?;
        self.peeked = None;
        Ok(token)
    }

    /// Takes the next token if it is this character.
    pub(super) fn takes(&mut self, sign: u8) -> Result<bool, Fault> {
        let found = self.peek()? == Some(Token::Sign(sign));
        if found {
            self.peeked = None;
        }
        Ok(found)
    }

    /// Takes this character, which has to be next.
    pub(super) fn expect(&mut self, sign: u8) -> Result<(), Fault> {
        if self.takes(sign)? {
            return Ok(());
        }
        Err(self.fault(format!("expected '{}'", char::from(sign))))
    }

    /// Takes a name, which has to be next.
    pub(super) fn word(&mut self) -> Result<&'a str, Fault> {
        match self.next()? {
            Some(Token::Word(word)) => Ok(word),
            _ => Err(self.fault("expected a name")),
        }
    }

    fn read(&mut self) -> Result<Option<Token<'a>>, Fault> {
        self.skip_space()?;
        let Some(byte) = self.byte(0) else { return Ok(None) };
        let next_is_letter = self.byte(1).is_some_and(is_letter);
        Ok(Some(match byte {
            b'.' if next_is_letter => {
                self.skip(1);
                Token::Directive(self.take_while(is_letter))
            }
            b'0'..=b'9' => self.number()?,
            b'%' if next_is_letter => {
                let start = self.at;
                self.skip(1);
                self.take_while(is_letter);
                let name = self.text.get(start..self.at).unwrap_or_default();
                Token::Word(std::str::from_utf8(name).unwrap_or_default())
            }
            _ if is_letter(byte) => Token::Word(self.take_while(is_letter)),
            b'"' => {
                self.skip(1);
                self.skip_past(b"\"")?;
                Token::Text
            }
            0x20..=0x7E => {
                self.skip(1);
                Token::Sign(byte)
            }
            _ => return Err(self.fault(format!("unexpected byte {byte:#04x}"))),
        }))
    }

    fn number(&mut self) -> Result<Token<'a>, Fault> {
        let radix = match (self.byte(0), self.byte(1)) {
            (Some(b'0'), Some(b'f' | b'F')) => {
                let digits = self.digits(2);
                let bits = u32::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 8);
                return bits.map(Token::Single).ok_or_else(|| self.fault("not a number"));
            }
            (Some(b'0'), Some(b'd' | b'D')) => {
                let digits = self.digits(2);
                let bits = u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16);
                let number = bits.map(|bits| Token::Double(f64::from_bits(bits)));
                return number.ok_or_else(|| self.fault("not a number"));
            }
            (Some(b'0'), Some(b'x' | b'X')) => 16,
            (Some(b'0'), Some(b'b' | b'B')) => 2,
            (Some(b'0'), Some(b'0'..=b'7')) => 8,
            _ => return self.decimal(),
        };
        let digits = self.digits(if radix == 8 { 1 } else { 2 });
        let integer = u64::from_str_radix(digits.trim_end_matches(['u', 'U']), radix);
        integer.map(Token::Integer).map_err(|_| self.fault("not a number"))
    }

    /// Letters and digits after a prefix.
    fn digits(&mut self, prefix: usize) -> &'a str {
        self.skip(prefix);
        self.take_while(|byte| byte.is_ascii_alphanumeric())
    }

    fn decimal(&mut self) -> Result<Token<'a>, Fault> {
        let start = self.at;
        self.take_while(|byte| byte.is_ascii_digit());
        let has_fraction = self.byte(0) == Some(b'.')
            && self.byte(1).is_none_or(|byte| byte.is_ascii_digit() || !is_letter(byte));
        if has_fraction {
            self.skip(1);
            self.take_while(|byte| byte.is_ascii_digit());
        }
        let has_exponent = matches!(self.byte(0), Some(b'e' | b'E'));
        if has_exponent {
            self.skip(1);
            if matches!(self.byte(0), Some(b'+' | b'-')) {
                self.skip(1);
            }
            self.take_while(|byte| byte.is_ascii_digit());
        }
        let digits = self.text.get(start..self.at).unwrap_or_default();
        let digits = std::str::from_utf8(digits).unwrap_or_default();
        let number = if has_fraction || has_exponent {
            digits.parse().ok().map(Token::Double)
        } else {
            let integer = digits.parse().ok().map(Token::Integer);
            if matches!(self.byte(0), Some(b'u' | b'U')) {
                self.skip(1);
            }
            integer
        };
        number.ok_or_else(|| self.fault("not a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text.as_bytes());
        std::iter::from_fn(|| lexer.next().expect("the text is right")).collect()
    }

    #[test]
    fn text_is_cut_into_tokens_and_comments_are_left_out() {
        let text = ".u32 %r1, /* no\n */ $a = 0x1FU; // end\n@%p bra L; \"a\\\"b\" @@DWARF x";
        assert_eq!(
            tokens(text),
            [
                Token::Directive("u32"),
                Token::Word("%r1"),
                Token::Sign(b','),
                Token::Word("$a"),
                Token::Sign(b'='),
                Token::Integer(31),
                Token::Sign(b';'),
                Token::Sign(b'@'),
                Token::Word("%p"),
                Token::Word("bra"),
                Token::Word("L"),
                Token::Sign(b';'),
                Token::Text,
            ]
        );
    }

    #[test]
    fn numbers_of_every_form_are_read() {
        assert_eq!(
            tokens("0 017 0b101 42U 18446744073709551615 0f3F800000 0d3FF0000000000000 1.5 2e3"),
            [
                Token::Integer(0),
                Token::Integer(15),
                Token::Integer(5),
                Token::Integer(42),
                Token::Integer(u64::MAX),
                Token::Single(0x3F80_0000),
                Token::Double(1.0),
                Token::Double(1.5),
                Token::Double(2000.0),
            ]
        );
        for wrong in ["0xG", "0f12", "99999999999999999999", "\u{1}", "/* ", "\"", "1e"] {
            assert!(Lexer::new(wrong.as_bytes()).next().is_err(), "{wrong}");
        }
    }
}
