//! Access programs: the smallest workload that every back end can run.
//!
//! A program touches one byte at `offset`, `offset + stride`, … below `bytes`. An atomic access
//! touches the aligned word that holds the byte. Back ends that run the same program must leave the
//! same contents and, on one thread, move the same pages.

use crate::{DeviceId, Span};

/// The access of the host at each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum HostAccess {
    /// Reads the byte.
    Read,
    /// Writes this byte.
    Write(u8),
}

/// The access of the device at each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum DeviceAccess {
    /// Reads the byte.
    Read,
    /// Writes this byte.
    Write(u8),
    /// Adds 1, wrapping, to the 4-byte little-endian word at the place rounded down to 4. The words
    /// of all places have to lie wholly within the range: [`DeviceTouch::check`].
    AtomicAdd,
}

/// A host access program: ascending, one access after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HostTouch {
    /// The bytes that the program walks over.
    pub span: Span,
    /// Bytes from one access to the next; at least 1.
    pub stride_bytes: u64,
    /// The access at each place.
    pub access: HostAccess,
}

/// A device access program.
///
/// With one block of one thread each access is complete (system-wide fence) before the next is
/// made: one fault at a time. Otherwise a grid-stride loop over all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceTouch {
    /// The device that runs it.
    pub device: DeviceId,
    /// The bytes that the program walks over.
    pub span: Span,
    /// Bytes from one access to the next; at least 1.
    pub stride_bytes: u64,
    /// The access at each place.
    pub access: DeviceAccess,
    /// Blocks of the grid; at least 1.
    pub blocks: u32,
    /// Threads of a block; at least 1.
    pub threads: u32,
}

impl DeviceTouch {
    /// Bytes that one atomic access changes, at a multiple of as many.
    const WORD_BYTES: u64 = 4;

    /// Checks a program without its memory. Every back end refuses a program that does not pass
    /// with [`InvalidValue`](crate::ErrorKind::InvalidValue), before it touches anything.
    ///
    /// # Errors
    /// The reason: the stride, the blocks or the threads are 0, or an atomic access would change a
    /// word that reaches beyond the range, into bytes of another owner.
    pub const fn check(&self) -> Result<(), &'static str> {
        if self.stride_bytes == 0 || self.blocks == 0 || self.threads == 0 {
            return Err("stride, blocks and threads must be at least 1");
        }
        if matches!(self.access, DeviceAccess::AtomicAdd) && !self.holds_its_words() {
            return Err("an atomic add changes whole aligned words of 4 bytes, and one of them \
                        would reach beyond the range: start and end the range at multiples of 4");
        }
        Ok(())
    }

    /// Whether the aligned word around each place lies in the range. The first word and the last
    /// decide: places ascend.
    #[allow(
        clippy::arithmetic_side_effects,
        reason = "the stride was checked and is not 0; no difference is taken but of a smaller number"
    )]
    const fn holds_its_words(&self) -> bool {
        let Span { ptr, bytes } = self.span;
        if bytes == 0 {
            return true;
        }
        let last_place = (bytes - 1) / self.stride_bytes * self.stride_bytes;
        let last_word = last_place - last_place % Self::WORD_BYTES;
        ptr.0.is_multiple_of(Self::WORD_BYTES) && bytes - last_word >= Self::WORD_BYTES
    }

    /// Whether one thread makes all accesses, in order.
    #[must_use]
    pub const fn is_serial(&self) -> bool {
        self.blocks == 1 && self.threads == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DevicePtr;

    fn add(address: u64, bytes: u64, stride_bytes: u64) -> DeviceTouch {
        let span = Span::new(DevicePtr(address), bytes);
        let (device, access) = (DeviceId(0), DeviceAccess::AtomicAdd);
        DeviceTouch { device, span, stride_bytes, access, blocks: 1, threads: 1 }
    }

    /// The answer of [`DeviceTouch::check`], place by place.
    fn every_word_is_inside(touch: &DeviceTouch) -> bool {
        let Span { ptr, bytes } = touch.span;
        (0..bytes).step_by(touch.stride_bytes as usize).all(|offset| {
            let word = (ptr.0 + offset) / 4 * 4;
            word >= ptr.0 && word + 4 <= ptr.0 + bytes
        })
    }

    #[test]
    fn an_atomic_passes_if_and_only_if_each_of_its_words_is_inside() {
        for address in 4096..4104 {
            for bytes in 0..24 {
                for stride in 1..13 {
                    let touch = add(address, bytes, stride);
                    assert_eq!(touch.check().is_ok(), every_word_is_inside(&touch), "{touch:?}");
                    let write = DeviceTouch { access: DeviceAccess::Write(1), ..touch };
                    assert_eq!(write.check(), Ok(()), "one byte a place");
                }
            }
        }
    }

    #[test]
    fn a_range_at_the_end_of_the_address_space_is_checked_like_any_other() {
        assert_eq!(add(u64::MAX - 3, 4, u64::MAX).check(), Ok(()));
        assert!(add(u64::MAX - 3, 3, 1).check().is_err());
        assert_eq!(add(0, u64::MAX - 3, 4096).check(), Ok(()));
        assert!(add(0, u64::MAX, 1).check().is_err());
    }

    #[test]
    fn a_program_needs_a_stride_a_block_and_a_thread() {
        let touch = add(0, 4, 4);
        for touch in [
            DeviceTouch { stride_bytes: 0, ..touch },
            DeviceTouch { blocks: 0, ..touch },
            DeviceTouch { threads: 0, ..touch },
        ] {
            assert_eq!(touch.check(), Err("stride, blocks and threads must be at least 1"));
        }
    }
}
