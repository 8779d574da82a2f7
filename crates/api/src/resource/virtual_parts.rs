//! The parts that one range of mapped memory is made of: reservations, physical memory, mappings.
//!
//! Each range owns its list, so that what was reserved, created and mapped in one piece is given
//! back in one piece, however the range grew.

use pagewise_hal::{DevicePtr, MemoryAccess, MemoryHandle, MemoryProps, Result, Span};

use crate::Machine;

/// The properties that all parts of a resource's ranges have.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) props: MemoryProps,
    pub(super) access: Vec<MemoryAccess>,
    pub(super) align_bytes: u64,
    pub(super) hint: DevicePtr,
}

/// Physical memory, and where it is mapped now.
#[derive(Debug, Clone, Copy)]
struct Memory {
    handle: MemoryHandle,
    bytes: u64,
}

/// The parts of one range. They are given back by [`release`](Self::release), not by going out of
/// scope.
#[derive(Debug, Default)]
pub(super) struct Parts {
    reserved: Vec<Span>,
    /// In the order of the addresses at which it is mapped.
    memories: Vec<Memory>,
    mapped: Vec<Span>,
}

/// The effect of growing a range.
///
/// ```
/// use pagewise::resource::Growth;
/// assert!(Growth::Moved.is_elsewhere());
/// assert!(!Growth::InPlace.is_elsewhere());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Growth {
    /// The memory behind the range had as many bytes already.
    Enough,
    /// New memory follows the old at the addresses after it.
    InPlace,
    /// The addresses after it were taken: old and new memory are mapped at a new address, with the
    /// contents of the old.
    Moved,
}

impl Growth {
    /// Whether the range has another address than before.
    #[must_use]
    pub const fn is_elsewhere(self) -> bool {
        matches!(self, Self::Moved)
    }
}

impl Parts {
    /// Reserves, creates, maps and opens a range of so many bytes: a multiple of the granularity.
    /// If a step fails, those before it are taken back.
    pub(super) fn new(machine: &Machine, terms: &Terms, bytes: u64) -> Result<Self> {
        let mut parts = Self::default();
        let made = parts.create(machine, terms, bytes).and_then(|()| {
            let start = parts.reserve(machine, bytes, terms.align_bytes, terms.hint)?;
            parts.map_all(machine, terms, start)
        });
        match made {
            Ok(()) => Ok(parts),
            Err(error) => {
                machine.on_drop(|| parts.release(machine));
                Err(error)
            }
        }
    }

    /// The first address.
    pub(super) fn start(&self) -> DevicePtr {
        self.mapped.first().map_or(DevicePtr::NULL, |first| first.ptr)
    }

    /// The bytes of physical memory.
    pub(super) fn bytes(&self) -> u64 {
        self.memories.iter().map(|memory| memory.bytes).sum()
    }

    fn end(&self) -> DevicePtr {
        self.start().offset(self.bytes())
    }

    fn create(&mut self, machine: &Machine, terms: &Terms, bytes: u64) -> Result<()> {
        let handle = machine.backend().memory_create(bytes, terms.props)?;
        self.memories.push(Memory { handle, bytes });
        Ok(())
    }

    fn reserve(
        &mut self,
        machine: &Machine,
        bytes: u64,
        align_bytes: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let start = machine.backend().address_reserve(bytes, align_bytes, hint)?;
        self.reserved.push(Span::new(start, bytes));
        Ok(start)
    }

    /// Maps all memory from an address on, one behind the other, and gives access.
    fn map_all(&mut self, machine: &Machine, terms: &Terms, start: DevicePtr) -> Result<()> {
        let mut next = start;
        for memory in self.memories.clone() {
            let span = Span::new(next, memory.bytes);
            // SAFETY: the memory is this range's own. While it is mapped at two addresses, in
            // `grow_elsewhere`, no code uses either: the caller has the range exclusively.
            unsafe { machine.backend().memory_map(span, 0, memory.handle) }?;
            self.mapped.push(span);
            next = next.offset(memory.bytes);
        }
        let whole = Span::new(start, self.bytes());
        // SAFETY: the mappings are new, so that no work uses them, and access is only given.
        unsafe { machine.backend().memory_set_access(whole, &terms.access) }
    }

    /// Grows by a multiple of the granularity. If a step fails, the range is as before.
    /// `before_leaving` is called before old addresses are given up, and can keep that from
    /// happening by an error.
    pub(super) fn grow(
        &mut self,
        machine: &Machine,
        terms: &Terms,
        more_bytes: u64,
        before_leaving: impl FnOnce() -> Result<()>,
    ) -> Result<Growth> {
        let mut added = Self::default();
        let grown = added.create(machine, terms, more_bytes).and_then(|()| {
            let start = added.reserve(machine, more_bytes, 0, self.end())?;
            if start == self.end() {
                added.map_all(machine, terms, start)?;
                return Ok(Growth::InPlace);
            }
            added.give_back_addresses(machine)?;
            before_leaving()?;
            self.map_elsewhere(machine, terms, &mut added)?;
            Ok(Growth::Moved)
        });
        match grown {
            Ok(Growth::Moved) => {
                std::mem::swap(self, &mut added);
                // The range is complete. Old addresses that cannot be given back go with it.
                machine.on_drop(|| added.release(machine));
                self.keep_what_is_left_of(added);
                Ok(Growth::Moved)
            }
            Ok(growth) => {
                self.reserved.append(&mut added.reserved);
                self.memories.append(&mut added.memories);
                self.mapped.append(&mut added.mapped);
                Ok(growth)
            }
            Err(error) => {
                machine.on_drop(|| added.release(machine));
                Err(error)
            }
        }
    }

    /// Maps the old memory and then the added at a new address. The memory is `added`'s then, and
    /// the old addresses stay. If it fails, the memory is back and `added` has only its own.
    fn map_elsewhere(&mut self, machine: &Machine, terms: &Terms, added: &mut Self) -> Result<()> {
        let own = added.memories.clone();
        let all = [self.memories.as_slice(), &own].concat();
        let bytes = all.iter().map(|memory| memory.bytes).sum();
        let start = added.reserve(machine, bytes, terms.align_bytes, DevicePtr::NULL)?;
        added.memories = all;
        if let Err(error) = added.map_all(machine, terms, start) {
            added.memories = own;
            return Err(error);
        }
        self.memories.clear();
        Ok(())
    }

    fn keep_what_is_left_of(&mut self, other: Self) {
        let Self { reserved, memories, mapped } = other;
        // At the end, because the first mapping is the start of the range.
        self.reserved.extend(reserved);
        self.memories.extend(memories);
        self.mapped.extend(mapped);
    }

    /// Whether nothing is left to give back.
    pub(super) fn is_empty(&self) -> bool {
        self.reserved.is_empty() && self.memories.is_empty() && self.mapped.is_empty()
    }

    fn give_back_addresses(&mut self, machine: &Machine) -> Result<()> {
        keep_failing(&mut self.reserved, |span| {
            // SAFETY: the range was reserved for these parts, and no code uses its addresses: the
            // owner gives them up. The back end refuses a range in which memory is still mapped.
            unsafe { machine.backend().address_free(span) }
        })
    }

    /// Gives everything back. What a back end fails to take stays in the list, so that this can be
    /// called again; the first failure is returned. No work may use the range.
    pub(super) fn release(&mut self, machine: &Machine) -> Result<()> {
        let backend = machine.backend();
        let unmapped = keep_failing(&mut self.mapped, |span| {
            // SAFETY: these parts mapped the memory there, and their owner waited for the work that
            // uses it.
            unsafe { backend.memory_unmap(span) }
        });
        let released = keep_failing(&mut self.memories, |memory| {
            // SAFETY: the handle is of these parts alone, and it leaves the list with this call.
            unsafe { backend.memory_release(memory.handle) }
        });
        let freed = self.give_back_addresses(machine);
        unmapped.and(released).and(freed)
    }
}

/// Ends each thing and keeps those that could not be ended. The first failure is returned.
fn keep_failing<T: Copy>(things: &mut Vec<T>, mut end: impl FnMut(T) -> Result<()>) -> Result<()> {
    let mut first = Ok(());
    things.retain(|&thing| match end(thing) {
        Ok(()) => false,
        Err(error) => {
            if first.is_ok() {
                first = Err(error);
            }
            true
        }
    });
    first
}
