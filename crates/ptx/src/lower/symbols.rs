//! The names of a module: variables with their contents, shared variables, functions.

use std::collections::HashMap;

use super::modifiers::kind;
use crate::code::SharedVariable;
use crate::error::LoadError;
use crate::module::{Reference, Relocation, Space, Variable};
use crate::syntax::tree::{self, Initial, Item, Linking, Number, Place};
use crate::types::Type;

/// The most bytes of one variable: more than a GPU has.
const MOST_BYTES: u64 = 1 << 38;
/// The most bytes of initial values of one variable.
const MOST_INITIAL: u64 = 1 << 28;

/// The meaning of a name of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbol {
    /// A variable in the caller's memory.
    Variable(u32),
    /// A shared variable.
    Shared(u32),
    /// A function or kernel.
    Function(u32),
}

/// The names of a module, and its variables.
#[derive(Debug, Default)]
pub(super) struct Symbols<'t> {
    pub(super) names: HashMap<&'t str, Symbol>,
    /// The bytes of an element of each name that is an array.
    pub(super) arrays: HashMap<&'t str, u32>,
    pub(super) variables: Vec<Variable>,
    pub(super) shared: Vec<SharedVariable>,
    pub(super) functions: Vec<&'t tree::Function<'t>>,
    /// Values may name symbols that are declared further on.
    initials: Vec<(u32, &'t tree::Variable<'t>)>,
}

impl<'t> Symbols<'t> {
    /// Collects the names of all items.
    pub(super) fn of(module: &'t tree::Module<'t>) -> Result<Self, LoadError> {
        let mut symbols = Self::default();
        for item in &module.items {
            match item {
                Item::Variable(variable) => {
                    symbols.variable(variable, true)?;
                }
                Item::Function(function) => symbols.function(function)?,
                Item::Alias(..) => {}
            }
        }
        for item in &module.items {
            if let Item::Alias(name, of, place) = item {
                let Some(&symbol) = symbols.names.get(of) else {
                    return Err(place.error(format!("`{of}` is not declared")));
                };
                symbols.names.insert(name, symbol);
            }
        }
        Ok(symbols)
    }

    fn function(&mut self, function: &'t tree::Function<'t>) -> Result<(), LoadError> {
        if let Some(&Symbol::Function(index)) = self.names.get(function.name) {
            let known = &mut self.functions[index as usize];
            match (known.body.is_some(), function.body.is_some()) {
                (true, true) => {
                    return Err(function
                        .place
                        .error(format!("`{}` is defined twice", function.name)));
                }
                (false, true) => *known = function,
                _ => {}
            }
            return Ok(());
        }
        let symbol = Symbol::Function(self.functions.len() as u32);
        self.functions.push(function);
        self.name(function.name, symbol, function.place)
    }

    fn name(&mut self, name: &'t str, symbol: Symbol, place: Place) -> Result<(), LoadError> {
        if self.names.insert(name, symbol).is_some() {
            return Err(place.error(format!("`{name}` is declared twice")));
        }
        Ok(())
    }

    /// Adds a variable of the module, or a static one of a function.
    pub(super) fn variable(
        &mut self,
        variable: &'t tree::Variable<'t>,
        named: bool,
    ) -> Result<Symbol, LoadError> {
        let has_no_size = variable.sizes.contains(&None) && variable.initial.is_none();
        if has_no_size && variable.linking != Linking::Extern {
            let name = variable.name;
            let why = format!("the array `{name}` has no size: give it one, or add `.extern`");
            return Err(variable.place.error(why));
        }
        let (bytes, align) = extent(variable)?;
        let space = match variable.space {
            tree::Space::Shared => None,
            tree::Space::Global => Some(Space::Global),
            tree::Space::Constant => Some(Space::Constant),
            _ => {
                return Err(variable
                    .place
                    .error("a variable of this space stands inside a function"));
            }
        };
        if named && let Some(bytes) = element_bytes(variable) {
            self.arrays.insert(variable.name, bytes);
        }
        let known = if named { self.names.get(variable.name).copied() } else { None };
        let symbol = match (space, known) {
            (Some(space), known) => {
                let new = Variable {
                    name: variable.name.to_owned(),
                    space,
                    bytes,
                    align: align as u32,
                    managed: variable.managed,
                    defined: variable.linking != Linking::Extern,
                    visible: variable.linking != Linking::Static,
                    initial: Vec::new(),
                    relocations: Vec::new(),
                };
                let index = if let Some(Symbol::Variable(index)) = known {
                    // A declaration and its definition: the definition stays.
                    if new.defined {
                        self.variables[index as usize] = new;
                    }
                    index
                } else {
                    self.variables.push(new);
                    self.variables.len() as u32 - 1
                };
                self.initials.push((index, variable));
                Symbol::Variable(index)
            }
            (None, Some(known @ Symbol::Shared(_))) => known,
            (None, _) => {
                let dynamic = variable.sizes.first() == Some(&None);
                let limit = u32::try_from(bytes).ok().filter(|&bytes| bytes <= 1 << 28);
                let bytes = limit
                    .ok_or_else(|| variable.place.error("more shared memory than a GPU has"))?;
                self.shared.push(SharedVariable { bytes, align: align as u32, dynamic });
                Symbol::Shared(self.shared.len() as u32 - 1)
            }
        };
        if named && known.is_none() {
            self.name(variable.name, symbol, variable.place)?;
        }
        Ok(symbol)
    }

    /// The variables with their contents.
    pub(super) fn contents(&mut self) -> Result<(), LoadError> {
        for (index, variable) in std::mem::take(&mut self.initials) {
            let Some(initial) = &variable.initial else { continue };
            let kind = kind(variable.kind).unwrap_or(Type::B8);
            let mut sizes: Vec<u64> = variable.sizes.iter().map(|size| size.unwrap_or(0)).collect();
            if variable.vector > 1 {
                sizes.push(u64::from(variable.vector));
            }
            let mut writer = Writer {
                names: &self.names,
                kind,
                place: variable.place,
                out: Vec::new(),
                relocations: Vec::new(),
            };
            writer.value(initial, &sizes, 0)?;
            let (out, relocations) = (writer.out, writer.relocations);
            let place = &mut self.variables[index as usize];
            if variable.sizes.first() == Some(&None) && variable.linking != Linking::Extern {
                place.bytes = place.bytes.max(out.len() as u64);
            }
            if out.len() as u64 > place.bytes {
                return Err(variable.place.error("more initial values than the variable holds"));
            }
            (place.initial, place.relocations) = (out, relocations);
        }
        Ok(())
    }
}

/// Writes initial values.
struct Writer<'a, 't> {
    names: &'a HashMap<&'t str, Symbol>,
    kind: Type,
    place: Place,
    out: Vec<u8>,
    relocations: Vec<Relocation>,
}

impl Writer<'_, '_> {
    fn value(&mut self, initial: &Initial<'_>, sizes: &[u64], at: u64) -> Result<(), LoadError> {
        let size = u64::from(self.kind.bytes());
        match initial {
            Initial::List(values) => {
                let inner = sizes.get(1..).unwrap_or(&[]);
                let step = inner.iter().fold(size, |all, &one| all.saturating_mul(one));
                for (index, value) in values.iter().enumerate() {
                    let nested = matches!(value, Initial::List(_));
                    let step = if nested { step } else { size };
                    let place = at.saturating_add(step.saturating_mul(index as u64));
                    self.value(value, if nested { inner } else { &[] }, place)?;
                }
                Ok(())
            }
            Initial::Number(number) => {
                let bits = bits(*number, self.kind)
                    .ok_or_else(|| self.place.error("a value of another type"))?;
                self.bytes(at, &bits.to_le_bytes()[..size.min(8) as usize])
            }
            Initial::Symbol { name, offset, generic } => {
                let symbol = self.names.get(name).copied();
                let to = match symbol {
                    Some(Symbol::Variable(index)) => Reference::Variable(index),
                    Some(Symbol::Function(index)) => Reference::Function(index),
                    _ => return Err(self.place.error(format!("`{name}` has no address here"))),
                };
                let _ = generic;
                self.relocations.push(Relocation { at, bytes: size as u32, to, offset: *offset });
                self.bytes(at, &[0; 8][..size.min(8) as usize])
            }
        }
    }

    fn bytes(&mut self, at: u64, bytes: &[u8]) -> Result<(), LoadError> {
        let end = at.saturating_add(bytes.len() as u64);
        if end > MOST_INITIAL {
            return Err(self.place.error("too many initial values"));
        }
        if self.out.len() < end as usize {
            self.out.resize(end as usize, 0);
        }
        self.out[at as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }
}

/// The bits of a number as a type; `None` if it is of another kind.
pub(super) fn bits(number: Number, kind: Type) -> Option<u64> {
    Some(match (number, kind) {
        (Number::Integer(value), Type::F32) => u64::from((value.cast_signed() as f32).to_bits()),
        (Number::Integer(value), Type::F64) => (value.cast_signed() as f64).to_bits(),
        (Number::Integer(value), _) => value,
        (Number::Single(bits), Type::F64) => f64::from(f32::from_bits(bits)).to_bits(),
        (Number::Single(bits), Type::F32 | Type::B32) => u64::from(bits),
        (Number::Double(bits), Type::F32) => u64::from((f64::from_bits(bits) as f32).to_bits()),
        (Number::Double(bits), Type::F64 | Type::B64) => bits,
        _ => return None,
    })
}

/// The bytes of an element of a variable; `None` if it is no array.
pub(super) fn element_bytes(variable: &tree::Variable<'_>) -> Option<u32> {
    let kind = kind(variable.kind).unwrap_or(Type::B8);
    (!variable.sizes.is_empty()).then(|| kind.bytes())
}

/// The bytes and the alignment of a variable.
pub(super) fn extent(variable: &tree::Variable<'_>) -> Result<(u64, u64), LoadError> {
    let refuse = |message: &str| Err(variable.place.error(message));
    let size = match (kind(variable.kind), variable.kind) {
        (Some(kind), _) if kind != Type::Pred => u64::from(kind.bytes()),
        (_, "texref" | "samplerref" | "surfref") => {
            return refuse("textures and surfaces are not supported");
        }
        _ => return refuse("the variable's type is not known here"),
    };
    let element = size * u64::from(variable.vector);
    let mut bytes = element;
    for size in &variable.sizes {
        bytes = bytes.saturating_mul(size.unwrap_or(0));
    }
    if bytes > MOST_BYTES {
        return refuse("the variable is larger than any memory");
    }
    let align = variable.align.unwrap_or(element);
    if !align.is_power_of_two() || align > 1 << 20 {
        return refuse("an alignment is a power of two up to 1 MiB");
    }
    Ok((bytes, align))
}
