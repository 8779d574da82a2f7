//! The places of a module's variables: each has an allocation of its own, as on an H200.

use crate::image::Image;
use crate::image::parts::Variable;

/// The memory of a module's variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Storage {
    /// Addresses of variables, in the order of the image; none for those of other modules.
    addresses: Vec<Option<u64>>,
    /// Memory that goes with the module. Managed variables of a library are not in it.
    own: Vec<u64>,
}

impl Storage {
    /// Notes the next variable of the image, and whether its memory goes with the module.
    pub(crate) fn push(&mut self, address: Option<u64>, is_own: bool) {
        self.addresses.push(address);
        self.own.extend(address.filter(|_| is_own));
    }

    /// The address of a variable.
    pub(crate) fn address(&self, index: usize) -> Option<u64> {
        self.addresses.get(index).copied().flatten()
    }

    /// The memory that goes with the module.
    pub(crate) fn to_free(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.own.iter().copied()
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
