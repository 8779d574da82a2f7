//! Variables of modules in global and constant memory.

/// The space of a module's variable. Both are in the caller's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.global`
    Global,
    /// `.const`, which no kernel writes.
    Constant,
}

/// The target of an address in an initial value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reference {
    /// A variable, by its index in [`Module::variables`](super::Module::variables).
    Variable(u32),
    /// A function, by its index in the module.
    Function(u32),
}

/// A place in a variable's contents that holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Relocation {
    /// The offset in the variable, in bytes.
    pub at: u64,
    /// The bytes that the address fills.
    pub bytes: u32,
    /// The thing that is addressed.
    pub to: Reference,
    /// Added to its address.
    pub offset: i64,
}

/// A variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The name; those of functions' own static variables may repeat.
    pub name: String,
    /// Its space.
    pub space: Space,
    /// The size.
    pub bytes: u64,
    /// The alignment in bytes.
    pub align: u32,
    /// `.attribute(.managed)`
    pub managed: bool,
    /// Whether this module defines it, and does not only declare it.
    pub defined: bool,
    /// Whether other modules and the host see it.
    pub visible: bool,
    /// The first bytes of the contents; the rest is zero.
    pub initial: Vec<u8>,
    /// The addresses in the contents.
    pub relocations: Vec<Relocation>,
}
