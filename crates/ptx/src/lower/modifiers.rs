//! An opcode's modifiers: each is taken by the instruction that knows it, and none may be left.

use crate::math::Rounding;
use crate::types::Type;

/// The reason that an instruction is refused.
pub(super) type Refusal = String;

/// The modifiers that are left to take.
pub(super) struct Modifiers<'t> {
    left: Vec<&'t str>,
}

impl<'t> Modifiers<'t> {
    /// The opcode's name, and its modifiers.
    pub(super) fn split(opcode: &'t str) -> (&'t str, Self) {
        let mut parts = opcode.split('.');
        let name = parts.next().unwrap_or("");
        (name, Self { left: parts.collect() })
    }

    /// Takes a modifier if it is there.
    pub(super) fn take(&mut self, name: &str) -> bool {
        let found = self.left.iter().position(|&left| left == name);
        if let Some(index) = found {
            self.left.remove(index);
        }
        found.is_some()
    }

    /// Takes the first modifier of a table that is there.
    pub(super) fn choose<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        let index = self.left.iter().position(|left| table.iter().any(|(name, _)| name == left))?;
        let name = self.left.remove(index);
        table.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
    }

    /// Like [`Modifiers::choose`]; one of them must be there.
    pub(super) fn must<T: Copy>(&mut self, table: &[(&str, T)]) -> Result<T, Refusal> {
        self.choose(table).ok_or_else(|| {
            let names: Vec<_> = table.iter().map(|(name, _)| format!(".{name}")).collect();
            format!("one of {} is missing", names.join(", "))
        })
    }

    /// Takes the first type.
    pub(super) fn kind(&mut self) -> Result<Type, Refusal> {
        let index = self.left.iter().position(|name| kind(name).is_some());
        const NEWER: [&str; 7] =
            ["f32x2", "e2m3x2", "e3m2x2", "e2m1x2", "ue8m0x2", "e4m3x4", "e5m2x4"];
        let newer = self.left.iter().find(|name| NEWER.contains(name));
        let index = index.ok_or_else(|| match newer {
            Some(name) => format!("the type `.{name}` is not supported"),
            None => "the instruction names no type that is known here".to_owned(),
        })?;
        let name = self.left.remove(index);
        kind(name).ok_or_else(|| "no type".to_owned())
    }

    /// `.rn`, `.rz`, `.rm`, `.rp`
    pub(super) fn rounding(&mut self) -> Option<Rounding> {
        self.choose(&[
            ("rn", Rounding::Nearest),
            ("rz", Rounding::Zero),
            ("rm", Rounding::Down),
            ("rp", Rounding::Up),
        ])
    }

    /// `.rni`, `.rzi`, `.rmi`, `.rpi`
    pub(super) fn integer_rounding(&mut self) -> Option<Rounding> {
        self.choose(&[
            ("rni", Rounding::Nearest),
            ("rzi", Rounding::Zero),
            ("rmi", Rounding::Down),
            ("rpi", Rounding::Up),
        ])
    }

    /// Takes the first modifier that is one of some.
    pub(super) fn take_one(&mut self, names: &[&str]) -> Option<&'t str> {
        let index = self.left.iter().position(|left| names.contains(left))?;
        Some(self.left.remove(index))
    }

    /// Like [`Modifiers::take_one`]; one of them must be there.
    pub(super) fn must_one(&mut self, names: &[&str]) -> Result<&'t str, Refusal> {
        self.take_one(names).ok_or_else(|| format!("one of .{} is missing", names.join(", .")))
    }

    /// Takes hints on the levels of caches, which change no result.
    pub(super) fn hints(&mut self) {
        self.left.retain(|name| !(name.starts_with("L1::") || name.starts_with("L2::")));
    }

    /// The modifiers that are left.
    pub(super) fn names(&self) -> impl Iterator<Item = &'t str> {
        self.left.iter().copied()
    }

    /// Whether a modifier is left.
    pub(super) fn has(&self, name: &str) -> bool {
        self.left.contains(&name)
    }

    /// Whether a modifier is left that begins so.
    pub(super) fn any_starts_with(&self, start: &str) -> bool {
        self.left.iter().any(|name| name.starts_with(start))
    }

    /// Refuses the instruction if a modifier is left.
    pub(super) fn finish(&self) -> Result<(), Refusal> {
        match self.left.first() {
            None => Ok(()),
            Some(name) => Err(format!("the modifier `.{name}` is not supported here")),
        }
    }
}

/// The type of a name.
pub(super) fn kind(name: &str) -> Option<Type> {
    Some(match name {
        "pred" => Type::Pred,
        "b8" => Type::B8,
        "b16" => Type::B16,
        "b32" => Type::B32,
        "b64" => Type::B64,
        "b128" => Type::B128,
        "u8" => Type::U8,
        "u16" => Type::U16,
        "u32" => Type::U32,
        "u64" => Type::U64,
        "s8" => Type::S8,
        "s16" => Type::S16,
        "s32" => Type::S32,
        "s64" => Type::S64,
        "f16" => Type::F16,
        "f16x2" => Type::F16x2,
        "bf16" => Type::Bf16,
        "bf16x2" => Type::Bf16x2,
        "tf32" => Type::Tf32,
        "f32" => Type::F32,
        "f64" => Type::F64,
        "u16x2" => Type::U16x2,
        "s16x2" => Type::S16x2,
        _ => return None,
    })
}
