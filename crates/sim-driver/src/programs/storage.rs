//! The places of a module's variables.
//!
//! Variables of a module lie in one allocation of device memory; those that are managed lie in one
//! allocation of managed memory. Each starts at a multiple of 256 bytes, as on an H200.

use pagewise_hal::Code;

use crate::image::Image;
use crate::image::parts::{Linkage, Space, Variable};
use crate::outcome::Outcome;

/// Bytes that the address of each variable is a multiple of, at least.
const ALIGN: u64 = 256;

/// The variables of one kind of memory in their allocation.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Offsets in the order of the image; none for variables of other memory or of other modules.
    offsets: Vec<Option<u64>>,
    /// Bytes of the allocation.
    pub(crate) bytes: u64,
}

impl Layout {
    /// Lays out the variables that are managed, or those that are not.
    pub(crate) fn new(image: &Image, is_managed: bool) -> Outcome<Self> {
        let (mut offsets, mut bytes) = (Vec::with_capacity(image.variables.len()), 0_u64);
        for variable in &image.variables {
            let is_there = variable.is_managed == is_managed
                && variable.linkage != Linkage::Extern
                && variable.space != Space::Shared;
            if !is_there {
                offsets.push(None);
                continue;
            }
            let offset = bytes.checked_next_multiple_of(variable.align.max(ALIGN));
            let offset = offset.ok_or(Code::OUT_OF_MEMORY)?;
            bytes = offset.checked_add(variable.bytes).ok_or(Code::OUT_OF_MEMORY)?;
            offsets.push(Some(offset));
        }
        Ok(Self { offsets, bytes })
    }
}

/// The memory of a module's variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Storage {
    /// Device memory.
    own: Option<u64>,
    /// Managed memory.
    managed: Option<u64>,
    /// Whether the managed memory is the module's alone. That of a library is not.
    owns_managed: bool,
    /// Addresses of variables, in the order of the image; none for those of other modules.
    addresses: Vec<Option<u64>>,
}

impl Storage {
    /// Variables in device memory, and in managed memory.
    pub(crate) fn new(
        (own, own_layout): (Option<u64>, &Layout),
        (managed, managed_layout): (Option<u64>, &Layout),
        owns_managed: bool,
    ) -> Self {
        let place = |(own_offset, managed_offset): (&Option<u64>, &Option<u64>)| {
            let (base, offset) = own.zip(*own_offset).or(managed.zip(*managed_offset))?;
            base.checked_add(offset)
        };
        let offsets = own_layout.offsets.iter().zip(&managed_layout.offsets);
        let addresses = offsets.map(place).collect();
        Self { own, managed, owns_managed, addresses }
    }

    /// The device memory.
    pub(crate) const fn own(&self) -> Option<u64> {
        self.own
    }

    /// The address of a variable.
    pub(crate) fn address(&self, index: usize) -> Option<u64> {
        self.addresses.get(index).copied().flatten()
    }

    /// The address of a variable that this storage gives what it begins with.
    pub(crate) fn address_to_fill(&self, index: usize, variable: &Variable) -> Option<u64> {
        let is_filled = self.owns_managed || !variable.is_managed;
        self.address(index).filter(|_| is_filled)
    }

    /// The memory that goes with the module.
    pub(crate) fn to_free(&self) -> impl Iterator<Item = u64> + use<> {
        self.own.into_iter().chain(self.managed.filter(|_| self.owns_managed))
    }

    /// The first bytes of a variable, with the addresses in them.
    pub(crate) fn contents(&self, image: &Image, variable: &Variable) -> Vec<u8> {
        let mut contents = variable.contents.clone();
        for relocation in &variable.relocations {
            let symbol = image.variable(&relocation.symbol);
            // Functions have no address here, and variables of other modules none yet.
            let Some(address) = symbol.and_then(|index| self.address(index)) else { continue };
            let value = address.wrapping_add(relocation.addend);
            let value = value.checked_shr(relocation.shift).unwrap_or(0).to_le_bytes();
            let start = relocation.offset as usize;
            let end = start.saturating_add(relocation.bytes.min(value.len()));
            if contents.len() < end {
                contents.resize(end, 0);
            }
            if let Some(place) = contents.get_mut(start..end) {
                for (to, from) in place.iter_mut().zip(value) {
                    *to = from;
                }
            }
        }
        contents
    }
}
