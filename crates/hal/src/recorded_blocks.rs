//! The accesses of the blocks of a recorded launch, as bytes.
//!
//! Blocks follow each other in the order in which they began. Each number is LEB128, signed ones
//! with the sign in the lowest bit. An address is a difference from the one at the same place of the
//! block before, so that regular kernels give the same bytes for each block.
//!
//! | part | numbers |
//! | --- | --- |
//! | block | its number less the one before and 1, signed; its slot; how many warps follow |
//! | warp | its number less the one before; how many steps follow |
//! | access | 0 read, 1 write, 2 atomic, plus 4 if it waited, plus 8 if the number of its range follows, plus 16 if it is of the same instruction as the access before; accesses of the warp that may still wait; the line of 128 bytes in the range, as a signed difference |
//! | resumption | 3, or 7 for the grid's rounds instead of the block's; the round |
//! | order | 11; how many; the places in the old order |

use crate::FaultAccess;

/// Bytes of a line, the unit of recorded addresses.
const LINE_BYTES: u64 = 128;

const WAITED: u64 = 4;
const NEW_RANGE: u64 = 8;
const RESUMPTION: u64 = 3;
const RESUMPTION_OF_GRID: u64 = 7;
const ORDER: u64 = 11;
const JOINED: u64 = 16;

/// The most accesses of a warp that wait together, and the most warps of a block.
const WAITS_MAX: u64 = 4096;
const WARPS_MAX: u64 = 32;

/// A block of a recorded launch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordedBlock {
    /// Its number in the grid.
    pub block: u64,
    /// The place that it had among those of the machine. Blocks of one slot follow each other.
    pub slot: u32,
    /// The warps with accesses, each with its number in the block, in ascending order.
    pub warps: Vec<(u32, Vec<RecordedStep>)>,
}

/// A step of a recorded warp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedStep {
    /// An access, which is made once no more than `ahead` earlier ones wait.
    Access {
        /// The number of the range that holds it.
        range: u32,
        /// Its first byte in the range, to 128 bytes.
        offset: u64,
        /// Its kind: `Read`, `Write` or `Atomic`.
        access: FaultAccess,
        /// How many earlier accesses of the warp may still wait when it is made.
        ahead: u32,
        /// Whether it waited for its page. If not, it was the block's first to the page.
        waited: bool,
        /// Whether it is of the same instruction as the access of the warp before it.
        joined: bool,
    },
    /// The warp went on for another reason than its own pages, such as a barrier.
    Resumption {
        /// Whether `round` counts those of the grid, not those of the block.
        of_grid: bool,
        /// How many rounds before had brought pages that the block, or the grid, waited for.
        round: u64,
    },
    /// The accesses that wait, in another order: each by its place in the old one.
    Order(Vec<u32>),
}

/// Writes the accesses of blocks.
#[derive(Debug, Default)]
pub struct RecordedBlocksWriter {
    bytes: Vec<u8>,
    before: Before,
}

/// The block before: its number, and for each warp's place the addresses of its accesses.
#[derive(Debug, Default)]
struct Before {
    next_block: u64,
    warps: Vec<Vec<(u32, u64)>>,
}

impl Before {
    /// The range and the line that an access is expected to have: the ones of the block before, or
    /// those of the access before.
    fn expected(&self, warp: usize, made: &[(u32, u64)]) -> (u32, u64) {
        let same = self.warps.get(warp).and_then(|warp| warp.get(made.len()));
        same.or_else(|| made.last()).copied().unwrap_or((0, 0))
    }
}

impl RecordedBlocksWriter {
    /// Adds a block.
    pub fn push(&mut self, block: &RecordedBlock) {
        let difference = block.block.wrapping_sub(self.before.next_block);
        self.signed(difference.cast_signed());
        self.number(block.slot.into());
        self.number(block.warps.len() as u64);
        let (mut warps, mut last) = (Vec::with_capacity(block.warps.len()), 0);
        for (place, (number, steps)) in block.warps.iter().enumerate() {
            self.number(u64::from(number.wrapping_sub(last)));
            self.number(steps.len() as u64);
            last = *number;
            let mut made = Vec::with_capacity(steps.len());
            steps.iter().for_each(|step| self.step(place, step, &mut made));
            warps.push(made);
        }
        self.before = Before { next_block: block.block.wrapping_add(1), warps };
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn step(&mut self, warp: usize, step: &RecordedStep, made: &mut Vec<(u32, u64)>) {
        match *step {
            RecordedStep::Access { range, offset, access, ahead, waited, joined } => {
                let (expected_range, expected) = self.before.expected(warp, made);
                let kind = match access {
                    FaultAccess::Write => 1,
                    FaultAccess::Atomic => 2,
                    _ => 0,
                };
                let waits = if waited { WAITED } else { 0 };
                let joins = if joined { JOINED } else { 0 };
                let new_range = if range == expected_range { 0 } else { NEW_RANGE };
                self.number(kind | waits | new_range | joins);
                if range != expected_range {
                    self.number(range.into());
                }
                self.number(ahead.into());
                let line = offset / LINE_BYTES;
                self.signed(line.wrapping_sub(expected).cast_signed());
                made.push((range, line));
            }
            RecordedStep::Resumption { of_grid, round } => {
                self.number(if of_grid { RESUMPTION_OF_GRID } else { RESUMPTION });
                self.number(round);
            }
            RecordedStep::Order(ref places) => {
                self.number(ORDER);
                self.number(places.len() as u64);
                places.iter().for_each(|place| self.number(u64::from(*place)));
            }
        }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn signed(&mut self, number: i64) {
        self.number((number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned());
    }
}

/// Reads the accesses of blocks. After an error there are no more.
#[derive(Debug)]
pub struct RecordedBlocks<'a> {
    bytes: &'a [u8],
    before: Before,
}

/// The refusal of bytes that end inside of a block, or hold a number that is too large.
const CUT: &str = "the accesses of a launch end inside of a block";
const LARGE: &str = "the accesses of a launch have a number that is too large";

impl<'a> RecordedBlocks<'a> {
    /// Reads these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, before: Before::default() }
    }

    fn block(&mut self) -> Result<RecordedBlock, &'static str> {
        let block = self.before.next_block.wrapping_add(self.signed()?.cast_unsigned());
        let slot = self.at_most(u32::MAX.into())? as u32;
        let count = self.at_most(WARPS_MAX)?;
        let (mut warps, mut addresses, mut last) = (Vec::new(), Vec::new(), 0_u64);
        for place in 0..count as usize {
            last =
                last.checked_add(self.number()?).filter(|warp| *warp < WARPS_MAX).ok_or(LARGE)?;
            // Each step takes a byte at least, so the bytes bound what is read.
            let steps = self.at_most(self.bytes.len() as u64)?;
            let (mut list, mut made) = (Vec::new(), Vec::new());
            for _ in 0..steps {
                list.push(self.step(place, &mut made)?);
            }
            warps.push((last as u32, list));
            addresses.push(made);
        }
        self.before = Before { next_block: block.wrapping_add(1), warps: addresses };
        Ok(RecordedBlock { block, slot, warps })
    }

    fn step(
        &mut self,
        warp: usize,
        made: &mut Vec<(u32, u64)>,
    ) -> Result<RecordedStep, &'static str> {
        let kind = self.number()?;
        match kind {
            RESUMPTION | RESUMPTION_OF_GRID => {
                let of_grid = kind == RESUMPTION_OF_GRID;
                return Ok(RecordedStep::Resumption { of_grid, round: self.number()? });
            }
            ORDER => {
                let count = self.at_most(WAITS_MAX)?;
                let place = |this: &mut Self| this.at_most(WAITS_MAX).map(|place| place as u32);
                let places: Result<Vec<u32>, _> = (0..count).map(|_| place(self)).collect();
                return places.map(RecordedStep::Order);
            }
            _ => {}
        }
        let access = match kind & 3 {
            0 => FaultAccess::Read,
            1 => FaultAccess::Write,
            2 => FaultAccess::Atomic,
            _ => return Err(LARGE),
        };
        if kind > (WAITED | NEW_RANGE | JOINED | 3) {
            return Err(LARGE);
        }
        let (mut range, expected) = self.before.expected(warp, made);
        if kind & NEW_RANGE != 0 {
            range = self.at_most(u32::MAX.into())? as u32;
        }
        let ahead = self.at_most(WAITS_MAX)? as u32;
        let line = expected.wrapping_add(self.signed()?.cast_unsigned());
        let offset = line.checked_mul(LINE_BYTES).ok_or(LARGE)?;
        made.push((range, line));
        let (waited, joined) = (kind & WAITED != 0, kind & JOINED != 0);
        Ok(RecordedStep::Access { range, offset, access, ahead, waited, joined })
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first().ok_or(CUT)?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(LARGE)
    }

    fn at_most(&mut self, most: u64) -> Result<u64, &'static str> {
        self.number().and_then(|number| if number <= most { Ok(number) } else { Err(LARGE) })
    }

    fn signed(&mut self) -> Result<i64, &'static str> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ (number & 1).cast_signed().wrapping_neg())
    }
}

impl Iterator for RecordedBlocks<'_> {
    type Item = Result<RecordedBlock, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let block = self.block();
        if block.is_err() {
            self.bytes = &[];
        }
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(offset: u64, ahead: u32, waited: bool) -> RecordedStep {
        let joined = ahead % 2 == 1;
        RecordedStep::Access { range: 1, offset, access: FaultAccess::Write, ahead, waited, joined }
    }

    #[test]
    fn blocks_are_read_as_they_were_written() {
        let blocks: Vec<RecordedBlock> = (0..40)
            .map(|block| RecordedBlock {
                block: (block * 7) % 40,
                slot: block as u32 % 5,
                warps: vec![
                    (0, vec![access(block * 4096, 0, true), access(1 << 40, 1, false)]),
                    (
                        3,
                        vec![
                            RecordedStep::Resumption { of_grid: block % 2 == 0, round: 1 << block },
                            access(block << 20, 0, false),
                            RecordedStep::Order(vec![2, 0, 1]),
                        ],
                    ),
                ],
            })
            .collect();
        let mut writer = RecordedBlocksWriter::default();
        blocks.iter().for_each(|block| writer.push(block));
        let bytes = writer.finish();
        let read: Result<Vec<_>, _> = RecordedBlocks::new(&bytes).collect();
        assert_eq!(read, Ok(blocks));
    }

    #[test]
    fn bytes_that_are_cut_or_too_large_are_an_error_and_the_end() {
        let mut writer = RecordedBlocksWriter::default();
        let warps = vec![(0, vec![access(0, 0, true), access(128, 0, true)])];
        writer.push(&RecordedBlock { block: 0, slot: 0, warps });
        let bytes = writer.finish();
        for cut in 1..bytes.len() {
            let read: Vec<_> = RecordedBlocks::new(&bytes[..cut]).collect();
            assert!(matches!(read[..], [Err(_)]), "{cut}: {read:?}");
        }
        for seed in 0..2000_u32 {
            let noise: Vec<u8> = (0..64_u32)
                .map(|at| (seed.wrapping_mul(2_654_435_761) >> (at % 24)) as u8)
                .collect();
            assert!(RecordedBlocks::new(&noise).count() <= noise.len());
        }
    }
}
