//! The parser of a function's body: statements and operands.

use super::lexer::Token;
use super::parser::Parser;
use super::tree::{Instruction, Linking, Operand, Signature, Statement, StatementKind};
use crate::error::LoadError;

impl<'t> Parser<'t> {
    /// The statements between a function's braces.
    pub(super) fn body(&mut self) -> Result<Vec<Statement<'t>>, LoadError> {
        let mut statements = Vec::new();
        self.expect(b'{')?;
        // Inner braces become statements of their own: no text makes the parser recurse.
        let mut depth = 1_u32;
        loop {
            let place = self.place;
            let kind = match self.token {
                Token::Sign(b'{') => {
                    depth = depth.saturating_add(1);
                    self.advance()?;
                    StatementKind::Open
                }
                Token::Sign(b'}') => {
                    depth -= 1;
                    self.advance()?;
                    if depth == 0 {
                        return Ok(statements);
                    }
                    StatementKind::Close
                }
                Token::Sign(b';') => {
                    self.advance()?;
                    continue;
                }
                Token::Dot(word) => match self.directive(word, &mut statements)? {
                    Some(kind) => kind,
                    None => continue,
                },
                Token::Word(_) | Token::Sign(b'@') => self.labelled()?,
                _ => return Err(self.wrong("an instruction, a label, or `}`")),
            };
            statements.push(Statement { place, kind });
        }
    }

    fn directive(
        &mut self,
        word: &'t str,
        statements: &mut Vec<Statement<'t>>,
    ) -> Result<Option<StatementKind<'t>>, LoadError> {
        match word {
            "pragma" => {
                self.until(b';')?;
                Ok(None)
            }
            "loc" => {
                self.advance()?;
                let (file, line) = (self.small()?, self.small()?);
                self.rest_of_location()?;
                Ok(Some(StatementKind::Location { file, line }))
            }
            "file" => Err(self.place.error("`.file` stands outside of functions")),
            _ => {
                let mut variables = Vec::new();
                self.variables(Linking::Static, &mut variables)?;
                self.expect(b';')?;
                statements.extend(variables.into_iter().map(|variable| Statement {
                    place: variable.place,
                    kind: StatementKind::Variable(variable),
                }));
                Ok(None)
            }
        }
    }

    /// The column, and where the function was inlined: `5, function_name x, inlined_at 1 2 3`.
    fn rest_of_location(&mut self) -> Result<(), LoadError> {
        if let Token::Number(_) = self.token {
            self.advance()?;
        }
        while self.accept(b',')? {
            match self.advance()? {
                Token::Word("function_name") => {
                    self.name()?;
                    self.offset()?;
                }
                Token::Word("inlined_at") => {
                    for _ in 0..3 {
                        self.small()?;
                    }
                }
                _ => return Err(self.wrong("`function_name` or `inlined_at`")),
            }
        }
        Ok(())
    }

    fn labelled(&mut self) -> Result<StatementKind<'t>, LoadError> {
        let start = self.place.offset;
        let guard = if self.accept(b'@')? {
            let negated = self.accept(b'!')?;
            Some((self.name()?, negated))
        } else {
            None
        };
        let opcode = self.name()?;
        if guard.is_none() && self.accept(b':')? {
            return self.after_label(opcode);
        }
        let operands = self.operands()?;
        let end = self.place.offset;
        self.expect(b';')?;
        let text = self.text[start..end].trim_end();
        Ok(StatementKind::Instruction(Instruction { guard, opcode, operands, text }))
    }

    fn after_label(&mut self, label: &'t str) -> Result<StatementKind<'t>, LoadError> {
        match self.token {
            Token::Dot("branchtargets" | "calltargets") => {
                self.advance()?;
                let mut names = vec![self.name()?];
                while self.accept(b',')? {
                    names.push(self.name()?);
                }
                self.expect(b';')?;
                Ok(StatementKind::Targets(label, names))
            }
            Token::Dot("callprototype") => {
                self.advance()?;
                let returns =
                    if self.token == Token::Sign(b'(') { self.parameters()? } else { Vec::new() };
                self.name()?;
                let params =
                    if self.token == Token::Sign(b'(') { self.parameters()? } else { Vec::new() };
                // `.noreturn` and `.abi_preserve` change no result.
                self.until(b';')?;
                Ok(StatementKind::Prototype(label, Signature { returns, params }))
            }
            _ => Ok(StatementKind::Label(label)),
        }
    }

    fn operands(&mut self) -> Result<Vec<Operand<'t>>, LoadError> {
        let mut operands = Vec::new();
        if self.token == Token::Sign(b';') {
            return Ok(operands);
        }
        loop {
            operands.push(self.operand(0)?);
            if !self.accept(b',')? {
                return Ok(operands);
            }
        }
    }

    fn operand(&mut self, depth: u32) -> Result<Operand<'t>, LoadError> {
        match self.token {
            Token::Sign(b'[') => self.address(),
            Token::Sign(b'{') => Ok(Operand::Vector(self.several(b'}', depth)?)),
            Token::Sign(b'(') => Ok(Operand::List(self.several(b')', depth)?)),
            Token::Sign(b'!') => {
                self.advance()?;
                Ok(Operand::Not(self.name()?))
            }
            Token::Word(name) => {
                self.advance()?;
                if self.accept(b'|')? {
                    return Ok(Operand::Pair(name, self.name()?));
                }
                if self.token == Token::Sign(b'[') {
                    let (register, number) = self.index()?;
                    self.expect(b']')?;
                    return Ok(Operand::Element { array: name, register, number });
                }
                match self.offset()? {
                    0 => Ok(Operand::Name(name)),
                    offset => Ok(Operand::Sum(name, offset)),
                }
            }
            Token::Sign(b'-') => {
                self.advance()?;
                if let Token::Word(name) = self.token {
                    self.advance()?;
                    return Ok(Operand::Negative(name));
                }
                Ok(Operand::Number(self.positive()?.negative()))
            }
            _ => Ok(Operand::Number(self.literal()?)),
        }
    }

    fn several(&mut self, end: u8, depth: u32) -> Result<Vec<Operand<'t>>, LoadError> {
        if depth == 2 {
            return Err(self.place.error("operands nest too deep"));
        }
        self.advance()?;
        let mut operands = Vec::new();
        while !self.accept(end)? {
            operands.push(self.operand(depth + 1)?);
            if self.token != Token::Sign(end) {
                self.expect(b',')?;
            }
        }
        Ok(operands)
    }

    /// `[name+number` or `[number`
    fn index(&mut self) -> Result<(Option<&'t str>, i64), LoadError> {
        self.advance()?;
        match self.token {
            Token::Word(name) => {
                self.advance()?;
                Ok((Some(name), self.offset()?))
            }
            _ => {
                let first = self.size()?.cast_signed();
                Ok((None, first.wrapping_add(self.offset()?)))
            }
        }
    }

    fn address(&mut self) -> Result<Operand<'t>, LoadError> {
        let (base, offset) = self.index()?;
        let more = self.token == Token::Sign(b',');
        while self.accept(b',')? {
            self.operand(1)?;
        }
        self.expect(b']')?;
        Ok(Operand::Address { base, offset, more })
    }
}
