//! The parser of a module's items: directives, variables, functions.

use super::lexer::{Lexer, Place, Token};
use super::tree::{
    Directive, Function, Initial, Item, Linking, Module, Number, Signature, Space, Variable,
};
use crate::error::LoadError;

/// How deep braces of an initialiser may nest.
const DEEPEST: u32 = 16;

/// Parses the text of a module.
///
/// # Errors
/// If the text is no PTX: where, and what was expected there.
pub fn parse(text: &str) -> Result<Module<'_>, LoadError> {
    let mut parser = Parser::new(text)?;
    let mut module = Module { address_size: 64, ..Module::default() };
    while parser.token != Token::End {
        parser.item(&mut module)?;
    }
    parser.versioned(module)
}

/// The parser: one token ahead.
pub(super) struct Parser<'t> {
    pub(super) text: &'t str,
    lexer: Lexer<'t>,
    pub(super) token: Token<'t>,
    pub(super) place: Place,
    /// Where the token before ended.
    pub(super) end: usize,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Result<Self, LoadError> {
        let mut lexer = Lexer::new(text);
        let (token, place) = lexer.next()?;
        Ok(Self { text, lexer, token, place, end: 0 })
    }

    pub(super) fn advance(&mut self) -> Result<Token<'t>, LoadError> {
        let before = self.token;
        self.end = self.place.offset + 1;
        (self.token, self.place) = self.lexer.next()?;
        Ok(before)
    }

    /// Passes the sign if it is next.
    pub(super) fn accept(&mut self, sign: u8) -> Result<bool, LoadError> {
        let found = self.token == Token::Sign(sign);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn expect(&mut self, sign: u8) -> Result<(), LoadError> {
        if self.accept(sign)? {
            return Ok(());
        }
        Err(self.wrong(&format!("`{}`", char::from(sign))))
    }

    pub(super) fn wrong(&self, expected: &str) -> LoadError {
        let found = match self.token {
            Token::Word(text) | Token::Number(text) => format!("`{text}`"),
            Token::Dot(text) => format!("`.{text}`"),
            Token::Text(_) => "a string".to_owned(),
            Token::Sign(sign) => format!("`{}`", char::from(sign)),
            Token::End => "the end of the text".to_owned(),
        };
        self.place.error(format!("expected {expected}, found {found}"))
    }

    pub(super) fn name(&mut self) -> Result<&'t str, LoadError> {
        match self.token {
            Token::Word(name) => {
                self.advance()?;
                Ok(name)
            }
            _ => Err(self.wrong("a name")),
        }
    }

    /// The module, if it names its version.
    pub(super) fn versioned(&self, module: Module<'t>) -> Result<Module<'t>, LoadError> {
        if module.version == (0, 0) {
            let why = "the module names no `.version`: it is not PTX, or cut off";
            return Err(self.place.error(why));
        }
        Ok(module)
    }

    /// The next item.
    pub(super) fn item(&mut self, module: &mut Module<'t>) -> Result<(), LoadError> {
        let place = self.place;
        let Token::Dot(directive) = self.token else {
            return Err(self.wrong("a directive such as `.visible .entry`"));
        };
        match directive {
            "version" => {
                self.advance()?;
                module.version = self.version()?;
            }
            "target" => {
                self.advance()?;
                module.targets.push(self.name()?);
                while self.accept(b',')? {
                    module.targets.push(self.name()?);
                }
            }
            "address_size" => {
                self.advance()?;
                module.address_size = self.small()?;
            }
            "file" => {
                self.advance()?;
                module.files.push(self.file()?);
            }
            "section" => self.section()?,
            "pragma" => {
                self.advance()?;
                self.until(b';')?;
            }
            "alias" => {
                self.advance()?;
                let name = self.name()?;
                self.expect(b',')?;
                module.items.push(Item::Alias(name, self.name()?, place));
                self.expect(b';')?;
            }
            _ => self.declaration(module)?,
        }
        Ok(())
    }

    fn version(&mut self) -> Result<(u32, u32), LoadError> {
        let Token::Number(text) = self.token else {
            return Err(self.wrong("a version such as 8.0"));
        };
        let parts =
            text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let Some(version) = parts else { return Err(self.wrong("a version such as 8.0")) };
        self.advance()?;
        Ok(version)
    }

    fn file(&mut self) -> Result<(u32, &'t str), LoadError> {
        let index = self.small()?;
        let Token::Text(name) = self.token else { return Err(self.wrong("a file's name")) };
        self.advance()?;
        while self.accept(b',')? {
            self.advance()?;
        }
        Ok((index, name))
    }

    /// Passes tokens up to and with the sign.
    pub(super) fn until(&mut self, sign: u8) -> Result<(), LoadError> {
        while self.token != Token::Sign(sign) {
            if self.token == Token::End {
                return Err(self.wrong(&format!("`{}`", char::from(sign))));
            }
            self.advance()?;
        }
        self.advance()?;
        Ok(())
    }

    /// A section of debug information: nothing in it changes what kernels do.
    fn section(&mut self) -> Result<(), LoadError> {
        self.advance()?;
        while self.token != Token::Sign(b'{') {
            if self.token == Token::End {
                return Err(self.wrong("`{`"));
            }
            self.advance()?;
        }
        self.until(b'}')
    }

    fn declaration(&mut self, module: &mut Module<'t>) -> Result<(), LoadError> {
        let place = self.place;
        let mut linking = Linking::Static;
        loop {
            let Token::Dot(word) = self.token else {
                return Err(self.wrong("a variable or function"));
            };
            linking = match word {
                "extern" => Linking::Extern,
                "visible" => Linking::Visible,
                "weak" => Linking::Weak,
                "common" => Linking::Common,
                _ => break,
            };
            self.advance()?;
        }
        match self.token {
            Token::Dot("entry" | "func") => {
                let function = self.function(place, linking)?;
                module.items.push(Item::Function(function));
            }
            Token::Dot(word) if space(word).is_some() => {
                let mut variables = Vec::new();
                self.variables(linking, &mut variables)?;
                self.expect(b';')?;
                module.items.extend(variables.into_iter().map(Item::Variable));
            }
            _ => return Err(self.wrong("a variable or function")),
        }
        Ok(())
    }

    fn function(&mut self, place: Place, linking: Linking) -> Result<Function<'t>, LoadError> {
        let entry = self.token == Token::Dot("entry");
        self.advance()?;
        let mut directives = Vec::new();
        self.attribute(&mut false)?;
        let returns = if self.token == Token::Sign(b'(') { self.parameters()? } else { Vec::new() };
        let name = self.name()?;
        let params = if self.token == Token::Sign(b'(') { self.parameters()? } else { Vec::new() };
        while let Token::Dot(directive) = self.token {
            self.advance()?;
            if directive == "pragma" {
                self.until(b';')?;
                continue;
            }
            let mut values = Vec::new();
            while let Token::Number(_) = self.token {
                values.push(self.size()?);
                if !self.accept(b',')? {
                    break;
                }
            }
            directives.push(Directive { name: directive, values });
        }
        let body = if self.accept(b';')? { None } else { Some(self.body()?) };
        let signature = Signature { returns, params };
        Ok(Function { place, entry, linking, name, signature, directives, body })
    }

    /// `(.param .b32 a, .param .b64 b)`
    pub(super) fn parameters(&mut self) -> Result<Vec<Variable<'t>>, LoadError> {
        let mut parameters = Vec::new();
        self.expect(b'(')?;
        while !self.accept(b')')? {
            self.one_variable(Linking::Static, &mut parameters)?;
            if self.token != Token::Sign(b')') {
                self.expect(b',')?;
            }
        }
        Ok(parameters)
    }

    fn attribute(&mut self, managed: &mut bool) -> Result<(), LoadError> {
        if self.token != Token::Dot("attribute") {
            return Ok(());
        }
        self.advance()?;
        self.expect(b'(')?;
        while !self.accept(b')')? {
            match self.advance()? {
                Token::Dot("managed") => *managed = true,
                Token::End => return Err(self.wrong("`)`")),
                _ => {}
            }
        }
        Ok(())
    }

    /// The variables of one declaration, up to its `;`.
    pub(super) fn variables(
        &mut self,
        linking: Linking,
        into: &mut Vec<Variable<'t>>,
    ) -> Result<(), LoadError> {
        self.one_variable(linking, into)?;
        while self.accept(b',')? {
            let first = into.last().cloned().ok_or_else(|| self.wrong("a variable"))?;
            let (place, name) = (self.place, self.name()?);
            let empty =
                Variable { place, name, count: None, sizes: Vec::new(), initial: None, ..first };
            let variable = self.declarator(empty)?;
            into.push(variable);
        }
        Ok(())
    }

    fn one_variable(
        &mut self,
        linking: Linking,
        into: &mut Vec<Variable<'t>>,
    ) -> Result<(), LoadError> {
        let place = self.place;
        let mut variable = Variable {
            place,
            space: Space::Register,
            linking,
            align: None,
            kind: "",
            vector: 1,
            name: "",
            count: None,
            sizes: Vec::new(),
            initial: None,
            managed: false,
            pointer: false,
        };
        match self.token {
            Token::Dot(word) => {
                variable.space = space(word).ok_or_else(|| self.wrong("a state space"))?
            }
            _ => return Err(self.wrong("a state space")),
        }
        self.advance()?;
        while let Token::Dot(word) = self.token {
            match word {
                "attribute" => {
                    self.attribute(&mut variable.managed)?;
                    continue;
                }
                "align" => {
                    self.advance()?;
                    variable.align = Some(self.size()?);
                    continue;
                }
                "v2" => variable.vector = 2,
                "v4" => variable.vector = 4,
                "v8" => variable.vector = 8,
                "ptr" => variable.pointer = true,
                // The space that a pointer parameter points to.
                "global" | "const" | "local" | "shared" if variable.pointer => {}
                kind => variable.kind = kind,
            }
            self.advance()?;
        }
        variable.name = self.name()?;
        let variable = self.declarator(variable)?;
        into.push(variable);
        Ok(())
    }

    /// The rest behind a variable's name: a count, sizes, a value.
    fn declarator(&mut self, mut variable: Variable<'t>) -> Result<Variable<'t>, LoadError> {
        if self.accept(b'<')? {
            variable.count = Some(self.small()?);
            self.expect(b'>')?;
        }
        while self.accept(b'[')? {
            let size = if self.token == Token::Sign(b']') { None } else { Some(self.size()?) };
            self.expect(b']')?;
            variable.sizes.push(size);
        }
        if self.accept(b'=')? {
            variable.initial = Some(self.initial(0)?);
        }
        Ok(variable)
    }

    fn initial(&mut self, depth: u32) -> Result<Initial<'t>, LoadError> {
        if self.token == Token::Sign(b'{') {
            if depth == DEEPEST {
                return Err(self.place.error("braces of an initialiser nest too deep"));
            }
            self.advance()?;
            let mut values = Vec::new();
            while !self.accept(b'}')? {
                values.push(self.initial(depth + 1)?);
                if self.token != Token::Sign(b'}') {
                    self.expect(b',')?;
                }
            }
            return Ok(Initial::List(values));
        }
        let Token::Word(word) = self.token else { return Ok(Initial::Number(self.literal()?)) };
        self.advance()?;
        if word == "generic" && self.accept(b'(')? {
            let name = self.name()?;
            let inside = self.offset()?;
            self.expect(b')')?;
            let offset = inside.wrapping_add(self.offset()?);
            return Ok(Initial::Symbol { name, offset, generic: true });
        }
        Ok(Initial::Symbol { name: word, offset: self.offset()?, generic: false })
    }

    /// `+4`, `-4`, `+-4`, or nothing.
    pub(super) fn offset(&mut self) -> Result<i64, LoadError> {
        let negative = match self.token {
            Token::Sign(b'+') => false,
            Token::Sign(b'-') => true,
            _ => return Ok(0),
        };
        self.advance()?;
        match self.literal()? {
            Number::Integer(value) => {
                let value = value.cast_signed();
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            _ => Err(self.place.error("an offset is an integer of bytes")),
        }
    }

    /// A number with an optional sign.
    pub(super) fn literal(&mut self) -> Result<Number, LoadError> {
        if self.accept(b'-')? {
            return Ok(self.positive()?.negative());
        }
        let complement = self.accept(b'~')?;
        Ok(match self.positive()? {
            Number::Integer(value) if complement => Number::Integer(!value),
            other => other,
        })
    }

    /// A number without a sign.
    pub(super) fn positive(&mut self) -> Result<Number, LoadError> {
        let Token::Number(text) = self.token else { return Err(self.wrong("a number")) };
        let number = number(text)
            .ok_or_else(|| self.place.error(format!("`{text}` is no number of PTX")))?;
        self.advance()?;
        Ok(number)
    }

    pub(super) fn size(&mut self) -> Result<u64, LoadError> {
        match self.literal()? {
            Number::Integer(value) => Ok(value),
            _ => Err(self.place.error("expected an integer")),
        }
    }

    pub(super) fn small(&mut self) -> Result<u32, LoadError> {
        let place = self.place;
        u32::try_from(self.size()?).map_err(|_| place.error("this number is too large"))
    }
}

/// The state space of a directive's name.
fn space(word: &str) -> Option<Space> {
    Some(match word {
        "reg" => Space::Register,
        "sreg" => Space::Special,
        "const" => Space::Constant,
        "global" => Space::Global,
        "local" => Space::Local,
        "param" => Space::Parameter,
        "shared" => Space::Shared,
        _ => return None,
    })
}

/// The value of a number's text.
fn number(text: &str) -> Option<Number> {
    let bytes = text.as_bytes();
    if bytes.len() > 2 && bytes[0] == b'0' {
        let digits = &text[2..];
        match bytes[1] {
            b'f' | b'F' => return hexadecimal(digits, 8).map(|bits| Number::Single(bits as u32)),
            b'd' | b'D' => return hexadecimal(digits, 16).map(Number::Double),
            b'x' | b'X' => {
                return u64::from_str_radix(unsuffixed(digits), 16).ok().map(Number::Integer);
            }
            b'b' | b'B' => {
                return u64::from_str_radix(unsuffixed(digits), 2).ok().map(Number::Integer);
            }
            _ => {}
        }
    }
    let digits = unsuffixed(text);
    if digits.len() > 1
        && digits.starts_with('0')
        && digits.bytes().all(|digit| digit.is_ascii_digit())
    {
        return u64::from_str_radix(digits, 8).ok().map(Number::Integer);
    }
    if let Ok(value) = digits.parse() {
        return Some(Number::Integer(value));
    }
    let value: f64 = text.parse().ok()?;
    text.contains(['.', 'e', 'E']).then(|| Number::Double(value.to_bits()))
}

fn hexadecimal(digits: &str, length: usize) -> Option<u64> {
    (digits.len() == length).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

fn unsuffixed(digits: &str) -> &str {
    digits.strip_suffix('U').unwrap_or(digits)
}
