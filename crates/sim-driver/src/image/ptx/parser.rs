//! The statements of a PTX module.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pagewise_hal::DriverVersion;

use super::constant::integer;
use super::fault::Fault;
use super::instructions;
use super::lexer::{Lexer, Token};
use super::variable::{self, Declared};
use crate::image::parts::{Kernel, Linkage, Parameter, Space, Target, Variable};

/// A module of PTX.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// A function of another module that this one calls.
    pub(crate) unresolved: Option<String>,
    pub(crate) target: Target,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
}

/// The newest PTX that a driver compiles: the table "PTX release history" of the PTX ISA, and the texts of
/// nvcc 13.1 to 13.5.
const fn newest(driver: DriverVersion) -> (u32, u32) {
    match driver.0 {
        ..12010 => (8, 0),
        12010..12020 => (8, 1),
        12020..12030 => (8, 2),
        12030..12040 => (8, 3),
        12040..12050 => (8, 4),
        12050..12070 => (8, 5),
        12070..12080 => (8, 6),
        12080..12090 => (8, 7),
        12090..13000 => (8, 8),
        13000..13010 => (9, 0),
        13010..13020 => (9, 1),
        13020..13030 => (9, 2),
        13030..13040 => (9, 3),
        13040..13050 => (9, 4),
        13050.. => (9, 5),
    }
}

/// How many uses of names [`Parser::finish`] follows, for all kernels together. A compiled module
/// has far fewer; a text of a few megabytes could ask for more than a day of them.
const USES_MAX: usize = 1 << 24;

/// A kernel or a function that has a body.
#[derive(Debug, Default)]
struct Body<'a> {
    /// Bytes of the text.
    span: Range<usize>,
    shared_bytes: u64,
    local_bytes: u64,
    /// All names that it uses.
    names: BTreeSet<&'a str>,
}

/// The parser, with what it found.
struct Parser<'a> {
    lexer: Lexer<'a>,
    module: Module,
    /// Indices of variables by name.
    indices: BTreeMap<String, usize>,
    /// Bytes and alignment of shared variables outside of bodies.
    shared: BTreeMap<String, (u64, u64)>,
    bodies: BTreeMap<String, Body<'a>>,
    /// Functions without a body, and whether another module may have it.
    declared: BTreeMap<&'a str, bool>,
}

/// The functions that every driver has.
const SYSTEM: [&str; 5] = ["__assertfail", "cudaGraphSetConditional", "free", "malloc", "vprintf"];

/// Reads a module for a driver.
pub(crate) fn read(text: &[u8], driver: DriverVersion) -> Result<Module, Fault> {
    let mut parser = Parser {
        lexer: Lexer::new(text),
        module: Module::default(),
        indices: BTreeMap::new(),
        shared: BTreeMap::new(),
        bodies: BTreeMap::new(),
        declared: BTreeMap::new(),
    };
    parser.header(driver)?;
    while parser.statement()? {}
    parser.finish();
    parser.resolve()?;
    Ok(parser.module)
}

impl<'a> Parser<'a> {
    fn directive(&mut self, name: &str) -> Result<(), Fault> {
        match self.lexer.next()? {
            Some(Token::Directive(found)) if found == name => Ok(()),
            _ => Err(self.lexer.fault(format!("expected .{name}"))),
        }
    }

    fn header(&mut self, driver: DriverVersion) -> Result<(), Fault> {
        self.directive("version")?;
        let version = match self.lexer.next()? {
            Some(Token::Double(number)) => {
                let tenths = (number * 10.0).round() as u32;
                (tenths / 10, tenths % 10)
            }
            Some(Token::Integer(major)) => (u32::try_from(major).unwrap_or(u32::MAX), 0),
            _ => return Err(self.lexer.fault("a version is a number such as 8.0")),
        };
        if version > newest(driver) {
            return Err(Fault::newer_version(self.lexer.line(), version, newest(driver)));
        }
        self.directive("target")?;
        loop {
            let word = self.lexer.word()?;
            if word.starts_with("sm_") {
                let target = word.parse::<Target>().ok().filter(|target| target.is_in(version));
                self.module.target = target
                    .ok_or_else(|| self.lexer.fault(format!("Unsupported .target '{word}'")))?;
            }
            if !self.lexer.takes(b',')? {
                return Ok(());
            }
        }
    }

    /// Reads one statement; the answer is whether there was one.
    fn statement(&mut self) -> Result<bool, Fault> {
        let mut linkage = Linkage::Internal;
        loop {
            let Some(token) = self.lexer.next()? else { return Ok(false) };
            let Token::Directive(name) = token else {
                return match token {
                    Token::Sign(b';') => Ok(true),
                    _ => Err(self.lexer.fault(format!("{token:?} begins no statement"))),
                };
            };
            match name {
                "extern" => linkage = Linkage::Extern,
                "weak" | "common" => linkage = Linkage::Weak,
                "visible" => linkage = Linkage::Visible,
                "address_size" => {
                    if integer(&mut self.lexer)? != 64 {
                        return Err(self.lexer.fault("32-bit addresses are not supported"));
                    }
                    return Ok(true);
                }
                "entry" => return self.kernel().map(|()| true),
                "func" => return self.function(linkage).map(|()| true),
                "global" => return self.variables(Space::Global, linkage),
                "const" => return self.constants(linkage),
                "shared" => return self.variables(Space::Shared, linkage),
                _ => return self.skip_statement(name).map(|()| true),
            }
        }
    }

    /// A variable of constant memory, of which older programs have numbered banks.
    fn constants(&mut self, linkage: Linkage) -> Result<bool, Fault> {
        if self.lexer.takes(b'[')? {
            integer(&mut self.lexer)?;
            self.lexer.expect(b']')?;
        }
        self.variables(Space::Constant, linkage)
    }

    fn variables(&mut self, space: Space, linkage: Linkage) -> Result<bool, Fault> {
        let found = variable::variables(&mut self.lexer, space, linkage)?;
        for variable in found {
            if space == Space::Shared {
                self.shared.insert(variable.name, (variable.bytes, variable.align));
                continue;
            }
            let all = &mut self.module.variables;
            let index = self.indices.get(&variable.name).copied();
            match index.and_then(|index| all.get_mut(index)) {
                // A declaration that a definition follows, or the other way round.
                Some(known) if known.linkage == Linkage::Extern => *known = variable,
                Some(_) if matches!(linkage, Linkage::Extern | Linkage::Weak) => {}
                Some(_) => {
                    let what = format!("Duplicate definition of variable '{}'", variable.name);
                    return Err(self.lexer.fault(what));
                }
                None => {
                    self.indices.insert(variable.name.clone(), all.len());
                    all.push(variable);
                }
            }
        }
        Ok(true)
    }

    /// Passes over a directive that changes nothing here.
    fn skip_statement(&mut self, name: &str) -> Result<(), Fault> {
        match name {
            "section" => {
                while self.lexer.peek()? != Some(Token::Sign(b'{')) {
                    if self.lexer.next()?.is_none() {
                        return Err(self.lexer.fault("a section has no braces"));
                    }
                }
                self.lexer.expect(b'{')?;
                self.skip_braces()
            }
            // Lines of the source: numbers and texts without a semicolon.
            "file" | "loc" => loop {
                match self.lexer.peek()? {
                    Some(
                        Token::Integer(_) | Token::Text | Token::Sign(b',' | b'+') | Token::Word(_),
                    ) => {
                        self.lexer.next()?;
                    }
                    _ => return Ok(()),
                }
            },
            "alias" => {
                let name = self.lexer.word()?;
                self.declared.remove(name);
                self.skip_to_semicolon()
            }
            "pragma" | "tex" | "surf" | "sampler" => self.skip_to_semicolon(),
            _ => Err(self.lexer.fault(format!("'.{name}' begins no statement"))),
        }
    }

    fn skip_to_semicolon(&mut self) -> Result<(), Fault> {
        loop {
            match self.lexer.next()? {
                Some(Token::Sign(b';')) => return Ok(()),
                Some(_) => {}
                None => return Err(self.lexer.fault("a statement has no end")),
            }
        }
    }

    fn kernel(&mut self) -> Result<(), Fault> {
        let mut kernel = Kernel::new(self.lexer.word()?);
        kernel.parameters = self.parameters()?;
        if !self.performance(&mut kernel)? {
            return Ok(());
        }
        let name = kernel.name().to_owned();
        if self.bodies.contains_key(&name) {
            return Err(self.lexer.fault(format!("Duplicate definition of function '{name}'")));
        }
        let body = self.body()?;
        kernel.body = body.span.clone();
        self.bodies.insert(name, body);
        self.module.kernels.push(kernel);
        Ok(())
    }

    /// The parameters of a kernel, laid out one behind another.
    fn parameters(&mut self) -> Result<Vec<Parameter>, Fault> {
        let (mut parameters, mut end) = (Vec::new(), 0_u64);
        if !self.lexer.takes(b'(')? || self.lexer.takes(b')')? {
            return Ok(parameters);
        }
        loop {
            self.directive("param")?;
            let form = variable::form(&mut self.lexer)?;
            let Declared { align, bytes, .. } = variable::declared(&mut self.lexer, form)?;
            let offset = end.next_multiple_of(align);
            end = offset.saturating_add(bytes);
            if end > Kernel::PARAMETER_BYTES_MAX {
                return Err(self.lexer.fault("the parameters of a kernel are too large"));
            }
            parameters.push(Parameter { offset, bytes });
            if !self.lexer.takes(b',')? {
                break;
            }
        }
        self.lexer.expect(b')')?;
        Ok(parameters)
    }

    /// The directives between a kernel's parameters and its body. The answer is whether there is a
    /// body.
    fn performance(&mut self, kernel: &mut Kernel) -> Result<bool, Fault> {
        loop {
            let name = match self.lexer.peek()? {
                Some(Token::Sign(b'{')) => return Ok(true),
                Some(Token::Sign(b';')) => {
                    self.lexer.next()?;
                    return Ok(false);
                }
                Some(Token::Directive(name)) => name,
                _ => return Err(self.lexer.fault("expected the body of a kernel")),
            };
            self.lexer.next()?;
            match name {
                "maxntid" => kernel.max_block = Some(self.three()?),
                "reqntid" => kernel.required_block = Some(self.three()?),
                "reqnctapercluster" => kernel.required_cluster = Some(self.three()?),
                "maxclusterrank" => {
                    let [most, ..] = self.three()?;
                    kernel.most_in_cluster = Some(most);
                }
                "explicitcluster" => kernel.needs_cluster = true,
                "minnctapersm"
                | "maxnctapersm"
                | "maxnreg"
                | "abi_preserve"
                | "abi_preserve_control" => _ = integer(&mut self.lexer)?,
                "pragma" => self.skip_to_semicolon()?,
                _ => {}
            }
        }
    }

    /// One to three numbers, of which those left out are 1.
    fn three(&mut self) -> Result<[u32; 3], Fault> {
        let mut numbers = [1; 3];
        for number in &mut numbers {
            *number = u32::try_from(integer(&mut self.lexer)?).unwrap_or(u32::MAX);
            if !self.lexer.takes(b',')? {
                break;
            }
        }
        Ok(numbers)
    }

    fn function(&mut self, linkage: Linkage) -> Result<(), Fault> {
        // The place of the result, and other directives, come before the name.
        let name = loop {
            match self.lexer.next()? {
                Some(Token::Word(name)) => break name,
                Some(Token::Sign(b'(')) => self.skip_parentheses()?,
                Some(Token::Directive("attribute")) => {}
                _ => return Err(self.lexer.fault("expected the name of a function")),
            }
        };
        loop {
            match self.lexer.peek()? {
                Some(Token::Sign(b'{')) => break,
                Some(Token::Sign(b';')) => {
                    self.lexer.next()?;
                    self.declared.insert(name, linkage == Linkage::Extern);
                    return Ok(());
                }
                Some(Token::Sign(b'(')) => {
                    self.lexer.next()?;
                    self.skip_parentheses()?;
                }
                Some(_) => _ = self.lexer.next()?,
                None => return Err(self.lexer.fault("a function has no end")),
            }
        }
        let body = self.body()?;
        self.bodies.insert(name.to_owned(), body);
        Ok(())
    }

    /// Passes over the rest of what an open brace began.
    fn skip_braces(&mut self) -> Result<(), Fault> {
        loop {
            match self.lexer.next()? {
                Some(Token::Sign(b'}')) => return Ok(()),
                Some(_) => {}
                None => return Err(self.lexer.fault("braces have no end")),
            }
        }
    }

    /// Passes over the rest of what an open parenthesis began.
    fn skip_parentheses(&mut self) -> Result<(), Fault> {
        let mut open = 1_usize;
        while open > 0 {
            match self.lexer.next()? {
                Some(Token::Sign(b'(')) => open = open.saturating_add(1),
                Some(Token::Sign(b')')) => open = open.saturating_sub(1),
                Some(Token::Sign(b'{')) => {
                    return Err(self.lexer.fault("Parsing error near '{': syntax error"));
                }
                Some(_) => {}
                None => return Err(self.lexer.fault("parentheses have no end")),
            }
        }
        Ok(())
    }

    /// Reads a body in braces, with its variables. Of each instruction only its name is checked.
    fn body(&mut self) -> Result<Body<'a>, Fault> {
        let mut body = Body::default();
        self.lexer.expect(b'{')?;
        let start = self.lexer.position();
        // Whether the next token begins a statement, and how many braces are open: those of blocks,
        // and those of operands such as vectors.
        let (mut begins, mut blocks, mut operands) = (true, 1_usize, 0_usize);
        while blocks > 0 {
            let token = self.lexer.next()?.ok_or_else(|| self.lexer.fault("braces have no end"))?;
            match token {
                Token::Sign(b'{') if begins => blocks = blocks.saturating_add(1),
                Token::Sign(b'{') => operands = operands.saturating_add(1),
                Token::Sign(b'}') if operands > 0 => operands = operands.saturating_sub(1),
                Token::Sign(b'}') if begins => blocks = blocks.saturating_sub(1),
                Token::Sign(b'}') => {
                    return Err(self.lexer.fault("Parsing error near '}': syntax error"));
                }
                Token::Sign(b';') => {
                    begins = true;
                    continue;
                }
                Token::Sign(b'@') if begins => {
                    self.guard()?;
                    continue;
                }
                Token::Word(name) => {
                    if begins && self.lexer.takes(b':')? {
                        continue;
                    }
                    if begins && !instructions::is_known(name) {
                        let what = format!("Not a name of any known instruction: '{name}'");
                        return Err(self.lexer.fault(what));
                    }
                    body.names.insert(name);
                    begins = false;
                }
                // A line of the source has no semicolon.
                Token::Directive(name @ ("loc" | "file")) if begins => self.skip_statement(name)?,
                Token::Directive(space @ ("shared" | "local")) => {
                    self.variable_of_body(space, &mut body)?;
                    begins = false;
                }
                _ => begins = false,
            }
        }
        // Without the brace that ends it.
        body.span = start..self.lexer.position().saturating_sub(1);
        Ok(body)
    }

    /// The rest of `@%p` or `@!%p`, after which an instruction comes.
    fn guard(&mut self) -> Result<(), Fault> {
        self.lexer.takes(b'!')?;
        self.lexer.word().map(drop)
    }

    /// A variable of a body, or a part of an instruction such as `ld.shared`, which no type with a
    /// name follows.
    fn variable_of_body(&mut self, space: &str, body: &mut Body<'a>) -> Result<(), Fault> {
        let mut ahead = self.lexer.ahead();
        let found = variable::form(&mut ahead)
            .and_then(|form| variable::declared(&mut ahead, form))
            .and_then(|declared| Ok((declared, ahead.peek()?)));
        let Ok((declared, Some(Token::Sign(b';' | b',')))) = found else { return Ok(()) };
        let bytes = match space {
            "shared" => &mut body.shared_bytes,
            _ => &mut body.local_bytes,
        };
        // `ld.shared.u32 %r1, [x]` looks like a declaration of `%r1`.
        if !declared.name.starts_with('%') {
            *bytes = bytes.next_multiple_of(declared.align).saturating_add(declared.bytes);
        }
        Ok(())
    }

    /// Finds a function that a body uses and none defines. Only another module's may be missing.
    fn resolve(&mut self) -> Result<(), Fault> {
        let missing = |name: &&str| !self.bodies.contains_key(*name) && !SYSTEM.contains(name);
        let used = self.bodies.values().flat_map(|body| body.names.iter().copied());
        for name in used.filter(missing) {
            match self.declared.get(name) {
                Some(true) => self.module.unresolved = Some(name.to_owned()),
                Some(false) => return Err(Fault::unresolved(name)),
                None => {}
            }
        }
        Ok(())
    }

    /// Gives kernels the memory of the functions and variables that they use.
    fn finish(&mut self) {
        let (empty, mut uses) = (Body::default(), 0_usize);
        for kernel in &mut self.module.kernels {
            let mut reached = BTreeSet::from([kernel.name()]);
            let mut waiting = vec![kernel.name()];
            let (mut shared, mut local) = (0_u64, 0_u64);
            while let Some(name) = waiting.pop() {
                if let Some((bytes, align)) = self.shared.get(name) {
                    shared = shared.next_multiple_of(*align).saturating_add(*bytes);
                }
                let body = self.bodies.get(name).unwrap_or(&empty);
                shared = shared.saturating_add(body.shared_bytes);
                local = local.saturating_add(body.local_bytes);
                uses = uses.saturating_add(body.names.len());
                for used in body.names.iter().filter(|_| uses < USES_MAX) {
                    let is_known =
                        self.bodies.contains_key(*used) || self.shared.contains_key(*used);
                    if is_known && reached.insert(used) {
                        waiting.push(used);
                    }
                }
            }
            kernel.shared_bytes = shared;
            kernel.local_bytes = local;
        }
    }
}
