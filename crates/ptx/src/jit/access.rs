//! Loads and stores of all lanes from the address of the first one on: rows, and the same bytes.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

use super::emit::{Emit, foreign, plain};
use super::sites::{Site, Wanted};
use super::state::State;
use super::value::LineOf;
use crate::code::{Access, Fill, Place, WIDTH};

/// The first address of global memory's neighbours in the generic address space.
const BEHIND_GLOBAL: u64 = 1 << 56;

/// How the lanes' bytes follow from those of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// One behind the other.
    Row,
    Same,
}

impl Run {
    /// The run of a step that compiled code moves; `None` for others.
    pub(super) fn of(access: Access, step: i64, is_store: bool) -> Option<Self> {
        let is_row = access.count == 1
            && matches!((access.bytes, access.doubles), (4, 0) | (8, 1))
            && step == i64::from(access.bytes);
        match step {
            0 if !is_store => Some(Self::Same),
            _ if is_row => Some(Self::Row),
            _ => None,
        }
    }

    /// The bytes of so many lanes.
    pub(super) fn span(self, access: Access, lanes: usize) -> u32 {
        match self {
            Self::Row => access.all_bytes() * lanes as u32,
            Self::Same => access.all_bytes(),
        }
    }
}

impl Emit<'_> {
    /// The address of the first lane.
    pub(super) fn address(&mut self, line: LineOf, imm: u64, is_wide: bool) -> Value {
        if is_wide {
            return self.build.ins().iadd_imm(line.first, imm.cast_signed());
        }
        let word = self.build.ins().iadd_imm(line.first, i64::from((imm as u32).cast_signed()));
        self.build.ins().uextend(types::I64, word)
    }

    /// Where the bytes of the upper half of a run are.
    pub(super) fn upper_half(&mut self, first: Value, access: Access, run: Run) -> Value {
        match run {
            Run::Row => {
                let half = i64::from(run.span(access, WIDTH / 2));
                self.build.ins().iadd_imm(first, half)
            }
            Run::Same => first,
        }
    }

    /// Where the bytes of a span are.
    pub(super) fn span(&mut self, address: Value, wanted: Wanted) -> Value {
        let (offset, host) = match wanted.place {
            Place::Shared => (address, self.field(offset_of!(State, shared))),
            _ => {
                let start = self.site(wanted.site, offset_of!(Site, start));
                let host = self.site(wanted.site, offset_of!(Site, host));
                (self.build.ins().isub(address, start), host)
            }
        };
        let holds = self.has_place(offset, (wanted.site, wanted.align));
        let found = self.build.ins().iadd(host, offset);
        self.either(holds, found, |emit| {
            if wanted.place == Place::Generic {
                let limit = emit.double(BEHIND_GLOBAL);
                let is_global = emit.compare(IntCC::UnsignedLessThan, address, limit);
                emit.check(is_global, wanted.at);
            }
            let odd = emit.build.ins().band_imm(address, i64::from(wanted.align) - 1);
            let is_aligned = emit.build.ins().icmp_imm(IntCC::Equal, odd, 0);
            emit.check(is_aligned, wanted.at);
            let found = emit.call_span(address, wanted);
            let is_there = emit.build.ins().icmp_imm(IntCC::NotEqual, found, 0);
            emit.check(is_there, wanted.at);
            found
        })
    }

    /// A field of a site.
    pub(super) fn site(&mut self, site: u32, offset: usize) -> Value {
        let sites = self.field(offset_of!(State, sites));
        let offset = (site as usize * size_of::<Site>() + offset) as i32;
        self.build.ins().load(types::I64, plain(), sites, offset)
    }

    /// Whether an offset into the memory of a site is one of its aligned places.
    pub(super) fn has_place(&mut self, offset: Value, (site, align): (u32, u32)) -> Value {
        // The bits of an odd offset come to the top, which is beyond all places.
        let place = match align.trailing_zeros() {
            0 => offset,
            bits => self.build.ins().rotr_imm(offset, i64::from(bits)),
        };
        let places = self.site(site, offset_of!(Site, places));
        self.compare(IntCC::UnsignedLessThan, place, places)
    }

    /// Where a parameter of the kernel is.
    pub(super) fn parameter(&mut self, offset: u64) -> Value {
        let base = self.field(offset_of!(State, params));
        self.build.ins().iadd_imm(base, offset.cast_signed())
    }

    /// An element of an access that all lanes load from the same bytes: the value of its register.
    pub(super) fn load_same(&mut self, access: Access, from: Value, element: usize) -> Value {
        let is_double = access.doubles >> element & 1 != 0;
        let whole = if is_double { types::I64 } else { types::I32 };
        let offset = element as i32 * i32::from(access.bytes);
        let own = int_of(access.bytes);
        let value = self.build.ins().load(own, foreign(), from, offset);
        if own == whole {
            return value;
        }
        if own.bits() > whole.bits() {
            return self.build.ins().ireduce(whole, value);
        }
        match access.fill {
            Fill::Zero => self.build.ins().uextend(whole, value),
            Fill::Sign => self.build.ins().sextend(whole, value),
            Fill::Sign16 => {
                let value = self.build.ins().sextend(whole, value);
                self.build.ins().band_imm(value, 0xffff)
            }
        }
    }
}

/// The integer of so many bytes.
pub(super) fn int_of(bytes: u8) -> Type {
    match bytes {
        1 => types::I8,
        2 => types::I16,
        4 => types::I32,
        _ => types::I64,
    }
}
