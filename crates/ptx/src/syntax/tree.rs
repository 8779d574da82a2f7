//! The syntax tree of a module.

pub use super::lexer::Place;

/// A state space of variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.reg`
    Register,
    /// `.sreg`, which no program can declare.
    Special,
    /// `.const`
    Constant,
    /// `.global`
    Global,
    /// `.local`
    Local,
    /// `.param`
    Parameter,
    /// `.shared`
    Shared,
}

/// Which modules see a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Linking {
    /// This module only.
    #[default]
    Static,
    /// `.extern`: another module defines it.
    Extern,
    /// `.visible`: other modules may name it.
    Visible,
    /// `.weak`: another module's definition may replace it.
    Weak,
    /// `.common`: modules share one.
    Common,
}

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer; negative ones in two's complement.
    Integer(u64),
    /// `0f…`: the bits of an f32.
    Single(u32),
    /// `0d…` or a decimal fraction: the bits of an f64.
    Double(u64),
}

impl Number {
    /// The number with the other sign.
    pub(super) fn negative(self) -> Self {
        match self {
            Self::Integer(value) => Self::Integer(value.wrapping_neg()),
            Self::Single(bits) => Self::Single(bits ^ (1 << 31)),
            Self::Double(bits) => Self::Double(bits ^ (1 << 63)),
        }
    }
}

/// One value of an initialiser.
#[derive(Debug, Clone, PartialEq)]
pub enum Initial<'t> {
    /// A number.
    Number(Number),
    /// A symbol's address plus an offset.
    Symbol {
        /// The symbol.
        name: &'t str,
        /// Added to its address.
        offset: i64,
        /// Whether the address is generic, and not one of the symbol's own space.
        generic: bool,
    },
    /// Values between braces.
    List(Vec<Initial<'t>>),
}

/// A variable of any space.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable<'t> {
    /// Where it is declared.
    pub place: Place,
    /// Its space.
    pub space: Space,
    /// Which modules see it.
    pub linking: Linking,
    /// `.align`, in bytes.
    pub align: Option<u64>,
    /// The type's name without its dot.
    pub kind: &'t str,
    /// 1, or the elements of `.v2`, `.v4` and `.v8`.
    pub vector: u32,
    /// The name.
    pub name: &'t str,
    /// How many of `name0`, `name1` … are declared: `name<count>`.
    pub count: Option<u32>,
    /// The sizes between brackets; `None` between empty ones.
    pub sizes: Vec<Option<u64>>,
    /// The value after `=`.
    pub initial: Option<Initial<'t>>,
    /// `.attribute(.managed)`
    pub managed: bool,
    /// `.ptr`: a parameter that is a pointer.
    pub pointer: bool,
}

/// A directive of a function: `.maxntid 256, 1, 1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive<'t> {
    /// The name without its dot.
    pub name: &'t str,
    /// The numbers.
    pub values: Vec<u64>,
}

/// The parameters and results of a function.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Signature<'t> {
    /// The results.
    pub returns: Vec<Variable<'t>>,
    /// The parameters.
    pub params: Vec<Variable<'t>>,
}

/// A kernel or a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Function<'t> {
    /// Where it is declared.
    pub place: Place,
    /// Whether it is a kernel: `.entry`.
    pub entry: bool,
    /// Which modules see it.
    pub linking: Linking,
    /// The name.
    pub name: &'t str,
    /// Parameters and results.
    pub signature: Signature<'t>,
    /// The directives before the body.
    pub directives: Vec<Directive<'t>>,
    /// The body; `None` of a declaration.
    pub body: Option<Vec<Statement<'t>>>,
}

/// An operand of an instruction.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand<'t> {
    /// A register, a special register, a variable, a label, or `_`.
    Name(&'t str),
    /// A number.
    Number(Number),
    /// `name+offset` outside brackets.
    Sum(&'t str, i64),
    /// `name[register+number]`: an element of an array.
    Element {
        /// The array.
        array: &'t str,
        /// A part of the index.
        register: Option<&'t str>,
        /// Added to it.
        number: i64,
    },
    /// `!name`
    Not(&'t str),
    /// `-name`
    Negative(&'t str),
    /// `a|b`
    Pair(&'t str, &'t str),
    /// `{a, b}`
    Vector(Vec<Operand<'t>>),
    /// `[base+offset]`; the base is `None` of a plain number.
    Address {
        /// The register or variable.
        base: Option<&'t str>,
        /// Added to it.
        offset: i64,
        /// Whether more operands are between the brackets: an instruction on tensors.
        more: bool,
    },
    /// `(a, b)`: the arguments or results of a call.
    List(Vec<Operand<'t>>),
}

/// An instruction.
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction<'t> {
    /// The predicate, and whether it is negated.
    pub guard: Option<(&'t str, bool)>,
    /// The opcode and its modifiers: `ld.global.u32`.
    pub opcode: &'t str,
    /// The operands.
    pub operands: Vec<Operand<'t>>,
    /// The text.
    pub text: &'t str,
}

/// The kinds of statements.
#[derive(Debug, Clone, PartialEq)]
pub enum StatementKind<'t> {
    /// `name:`
    Label(&'t str),
    /// A variable.
    Variable(Variable<'t>),
    /// An instruction.
    Instruction(Instruction<'t>),
    /// `.loc file line`
    Location {
        /// The index of a `.file`.
        file: u32,
        /// The line in it.
        line: u32,
    },
    /// `{`: names declared from here end at the matching `}`.
    Open,
    /// `}`
    Close,
    /// `name: .branchtargets` or `.calltargets`: what an indirect jump or call may reach.
    Targets(&'t str, Vec<&'t str>),
    /// `name: .callprototype`
    Prototype(&'t str, Signature<'t>),
}

/// A statement of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement<'t> {
    /// Where it begins.
    pub place: Place,
    /// Its kind.
    pub kind: StatementKind<'t>,
}

/// An item of a module.
#[derive(Debug, Clone, PartialEq)]
pub enum Item<'t> {
    /// A variable.
    Variable(Variable<'t>),
    /// A kernel or function.
    Function(Function<'t>),
    /// `.alias name, of;`
    Alias(&'t str, &'t str, Place),
}

/// A module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Module<'t> {
    /// `.version`
    pub version: (u32, u32),
    /// `.target`
    pub targets: Vec<&'t str>,
    /// `.address_size` in bits.
    pub address_size: u32,
    /// The names of `.file`, by index.
    pub files: Vec<(u32, &'t str)>,
    /// Variables, functions and aliases.
    pub items: Vec<Item<'t>>,
}
