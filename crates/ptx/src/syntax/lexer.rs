//! The tokens of PTX.

use crate::error::LoadError;

/// A place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The line, from 1.
    pub line: u32,
    /// The column in bytes, from 1.
    pub column: u32,
    /// The offset in bytes.
    pub(crate) offset: usize,
}

impl Place {
    /// An error here.
    pub(crate) fn error(self, message: impl Into<String>) -> LoadError {
        LoadError::at(self.line, self.column, message)
    }
}

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'t> {
    /// A name, an opcode with its modifiers, or `_`.
    Word(&'t str),
    /// `.name`: a directive, a type, or an attribute.
    Dot(&'t str),
    /// A number's text.
    Number(&'t str),
    /// The text between quotes.
    Text(&'t str),
    /// A single character.
    Sign(u8),
    /// The end of the text.
    End,
}

/// The tokens of a text, one at a time.
pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0, line: 1, line_start: 0 }
    }

    fn place(&self) -> Place {
        let column = u32::try_from(self.at - self.line_start).unwrap_or(u32::MAX).saturating_add(1);
        Place { line: self.line, column, offset: self.at }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn bump(&mut self) {
        if self.peek(0) == b'\n' {
            self.line += 1;
            self.line_start = self.at + 1;
        }
        self.at += 1;
    }

    /// Passes spaces and comments.
    fn skip(&mut self) -> Result<(), LoadError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c, _) => self.bump(),
                // The driver reads up to the first zero byte.
                (0, _) => {
                    self.at = self.text.len();
                    return Ok(());
                }
                (b'/', b'/') => {
                    while self.at < self.text.len() && self.peek(0) != b'\n' {
                        self.bump();
                    }
                }
                (b'/', b'*') => {
                    let start = self.place();
                    self.at += 2;
                    while !(self.peek(0) == b'*' && self.peek(1) == b'/') {
                        if self.at >= self.text.len() {
                            return Err(start.error("this comment has no end: add `*/`"));
                        }
                        self.bump();
                    }
                    self.at += 2;
                }
                _ => return Ok(()),
            }
        }
    }

    fn while_part(&mut self, dots: bool) {
        loop {
            match self.peek(0) {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'$' | b'%' => self.at += 1,
                b'.' if dots => self.at += 1,
                b':' if self.peek(1) == b':' => self.at += 2,
                _ => return,
            }
        }
    }

    /// The next token and its place.
    pub(super) fn next(&mut self) -> Result<(Token<'t>, Place), LoadError> {
        self.skip()?;
        let place = self.place();
        let start = self.at;
        let token = match self.peek(0) {
            0 => Token::End,
            b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'$' | b'%' => {
                self.at += 1;
                self.while_part(true);
                Token::Word(&self.text[start..self.at])
            }
            b'.' if self.peek(1).is_ascii_digit() => self.number(start),
            b'.' => {
                self.at += 1;
                self.while_part(false);
                Token::Dot(&self.text[start + 1..self.at])
            }
            b'0'..=b'9' => self.number(start),
            b'"' => self.quoted(place)?,
            sign if sign.is_ascii() => {
                self.at += 1;
                Token::Sign(sign)
            }
            _ => return Err(place.error("this character is not ASCII: remove it")),
        };
        Ok((token, place))
    }

    fn number(&mut self, start: usize) -> Token<'t> {
        let hexadecimal = matches!(
            (self.peek(0), self.peek(1)),
            (b'0', b'x' | b'X' | b'f' | b'F' | b'd' | b'D' | b'b' | b'B')
        );
        loop {
            let exponent =
                !hexadecimal && matches!(self.text.as_bytes()[self.at.max(1) - 1], b'e' | b'E');
            match self.peek(0) {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' => self.at += 1,
                b'.' if !hexadecimal => self.at += 1,
                b'+' | b'-' if exponent && self.at > start => self.at += 1,
                _ => return Token::Number(&self.text[start..self.at]),
            }
        }
    }

    fn quoted(&mut self, place: Place) -> Result<Token<'t>, LoadError> {
        self.at += 1;
        let start = self.at;
        while self.peek(0) != b'"' {
            if self.at >= self.text.len() || self.peek(0) == b'\n' {
                return Err(place.error("this string has no end: add `\"`"));
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(Token::Text(&self.text[start..self.at - 1]))
    }
}
