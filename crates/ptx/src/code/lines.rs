//! The lines that registers of a kernel hold, and instructions on them.
//!
//! Only registers of the kernel itself hold lines, and of each file only the first 32. Few kernels have
//! more, and the first ones hold indices and addresses, which live longest.

use super::lanes::{CONSTANT, Lanes, Value, WIDTH, active};
use super::line::{Line, Wrapping};

/// How many registers of each file can hold lines.
pub(crate) const MOST_LINES: usize = 32;

/// Registers that can hold lines: those of 32 bits in the lower half, and those of 64 bits.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Set(u64);

impl Set {
    /// A register of 32 bits; `None` if it never holds a line.
    #[inline(always)]
    pub(crate) fn word(index: u32) -> Option<Self> {
        (index < MOST_LINES as u32).then(|| Self(1 << index))
    }

    /// A register of 64 bits, likewise.
    #[inline(always)]
    pub(crate) fn double(index: u32) -> Option<Self> {
        (index < MOST_LINES as u32).then(|| Self(1 << MOST_LINES << index))
    }

    /// The registers of both sets.
    #[inline(always)]
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline(always)]
    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// One bit for each register.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The indices of the registers of 32 bits.
    fn words(self) -> impl Iterator<Item = usize> {
        active(self.0 as u32)
    }

    /// The indices of the registers of 64 bits.
    fn doubles(self) -> impl Iterator<Item = usize> {
        active((self.0 >> MOST_LINES) as u32)
    }
}

/// The registers that hold lines.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    known: Set,
    /// Those of them with lanes that are not written yet.
    stale: Set,
}

impl Held {
    /// Where its sets are, for compiled code.
    pub(crate) const KNOWN: usize = std::mem::offset_of!(Self, known);
    pub(crate) const STALE: usize = std::mem::offset_of!(Self, stale);

    /// Whether all registers of a set hold lines.
    #[inline(always)]
    pub(crate) fn all(self, set: Set) -> bool {
        set.without(self.known) == Set::default()
    }

    /// The registers of a set hold lines from now on.
    #[inline(always)]
    pub(crate) fn keep(&mut self, set: Set) {
        self.known = self.known.with(set);
        self.stale = self.stale.with(set);
    }

    /// The registers of a set hold no lines from now on: all of their lanes are being written.
    #[inline(always)]
    pub(crate) fn forget(&mut self, set: Set) {
        self.known = self.known.without(set);
        self.stale = self.stale.without(set);
    }

    /// Whether registers of a set hold lines only.
    #[inline(always)]
    pub(crate) fn has_stale(self, set: Set) -> bool {
        set.0 & self.stale.0 != 0
    }

    /// Those registers of a set with lanes that the caller must write now.
    #[inline(always)]
    fn take_stale(&mut self, set: Set) -> Set {
        let stale = Set(set.0 & self.stale.0);
        self.stale = self.stale.without(stale);
        stale
    }
}

/// The lines of a warp's registers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines {
    pub(crate) held: Held,
    words: [Line<u32>; MOST_LINES],
    doubles: [Line<u64>; MOST_LINES],
}

/// Makes at least so many lines zero. Each warp begins so: lengths that the compiler knows are no calls.
#[inline(always)]
fn empty<T: Copy + Default>(lines: &mut [Line<T>; MOST_LINES], count: usize) {
    let none = Line::default();
    match count {
        0 => {}
        1..=8 => lines[..8].fill(none),
        9..=16 => lines[..16].fill(none),
        _ => lines.fill(none),
    }
}

impl Lines {
    /// All registers that can hold lines are zero, of so many of each file.
    pub(crate) fn begin(&mut self, words: usize, doubles: usize) {
        let (words, doubles) = (words.min(MOST_LINES), doubles.min(MOST_LINES));
        empty(&mut self.words, words);
        empty(&mut self.doubles, doubles);
        let first = |count: usize| (1_u64 << count) - 1;
        let all = Set(first(words) | first(doubles) << MOST_LINES);
        self.held = Held { known: all, stale: all };
    }

    /// Where the lines of both files are, for compiled code.
    pub(crate) fn pointers(&mut self) -> (*mut Held, *mut Line<u32>, *mut Line<u64>) {
        (&raw mut self.held, self.words.as_mut_ptr(), self.doubles.as_mut_ptr())
    }

    /// The step of a register's line, with the sign of its width; `None` if it holds none.
    pub(crate) fn step(&self, is_double: bool, place: u16) -> Option<i64> {
        let index = u32::from(place);
        let set = if is_double { Set::double(index)? } else { Set::word(index)? };
        let at = usize::from(place);
        self.held.all(set).then(|| match is_double {
            true => self.doubles[at].step.cast_signed(),
            false => self.words[at].step.cast_signed().into(),
        })
    }

    /// Makes registers lanes only, before an instruction of the lanes of a mask reads and writes them.
    /// `held` stands for [`Self::held`].
    #[inline(always)]
    pub(crate) fn leave(
        &self,
        held: &mut Held,
        lanes: &mut Lanes<'_>,
        [reads, writes]: [Set; 2],
        mask: u32,
    ) {
        // Lanes that do not execute it keep the old values of its results.
        self.fill(held, lanes, if mask == u32::MAX { reads } else { reads.with(writes) });
        held.forget(writes);
    }

    /// Writes the lanes of those registers of a set that hold lines only.
    #[inline(always)]
    pub(crate) fn fill(&self, held: &mut Held, lanes: &mut Lanes<'_>, set: Set) {
        let stale = held.take_stale(set);
        if stale != Set::default() {
            self.fill_each(lanes, stale);
        }
    }

    #[inline(never)]
    fn fill_each(&self, lanes: &mut Lanes<'_>, set: Set) {
        for at in set.words() {
            self.words[at].fill(lanes.word_mut(at as u16));
        }
        for at in set.doubles() {
            self.doubles[at].fill(lanes.double_mut(at as u16));
        }
    }

    /// Writes the lanes of all registers that hold lines only.
    pub(crate) fn fill_all(&mut self, lanes: &mut Lanes<'_>) {
        self.fill_each(lanes, self.held.stale);
        self.held.stale = Set::default();
    }

    /// Copies of registers with their lanes written.
    pub(crate) fn written(
        &self,
        words: &[[u32; WIDTH]],
        doubles: &[[u64; WIDTH]],
    ) -> (Vec<[u32; WIDTH]>, Vec<[u64; WIDTH]>) {
        let (mut words, mut doubles) = (words.to_vec(), doubles.to_vec());
        self.held.stale.words().for_each(|at| self.words[at].fill(&mut words[at]));
        self.held.stale.doubles().for_each(|at| self.doubles[at].fill(&mut doubles[at]));
        (words, doubles)
    }

    /// The line of addresses in a register of 32 or 64 bits, if it holds one: the first, and the step.
    #[inline(always)]
    pub(crate) fn addresses(&self, lanes: &Lanes<'_>, slot: u16, wide: bool) -> Option<(u64, u64)> {
        let set = match (slot & CONSTANT == 0, wide) {
            (true, true) => Set::double(slot.into())?,
            (true, false) => Set::word(slot.into())?,
            (false, _) => Set::default(),
        };
        self.held.all(set).then(|| {
            if wide {
                let line = self.double(lanes, slot);
                (line.first, line.step)
            } else {
                let line = self.word(lanes, slot);
                (line.first.into(), line.step.into())
            }
        })
    }

    /// All lanes of a register of 32 bits get the values of a line.
    #[inline(always)]
    pub(crate) fn set_word(&mut self, lanes: &mut Lanes<'_>, slot: u16, line: Line<u32>) {
        match Set::word(slot.into()) {
            Some(set) => {
                self.words[usize::from(slot) % MOST_LINES] = line;
                self.held.keep(set);
            }
            None => line.fill(lanes.word_mut(slot)),
        }
    }

    /// All lanes of a register of 64 bits get the values of a line.
    #[inline(always)]
    pub(crate) fn set_double(&mut self, lanes: &mut Lanes<'_>, slot: u16, line: Line<u64>) {
        match Set::double(slot.into()) {
            Some(set) => {
                self.doubles[usize::from(slot) % MOST_LINES] = line;
                self.held.keep(set);
            }
            None => line.fill(lanes.double_mut(slot)),
        }
    }

    #[inline(always)]
    fn word(&self, lanes: &Lanes<'_>, slot: u16) -> Line<u32> {
        if slot & CONSTANT == 0 {
            self.words[usize::from(slot) % MOST_LINES]
        } else {
            Line::same(lanes.word(slot)[0])
        }
    }

    #[inline(always)]
    fn double(&self, lanes: &Lanes<'_>, slot: u16) -> Line<u64> {
        if slot & CONSTANT == 0 {
            self.doubles[usize::from(slot) % MOST_LINES]
        } else {
            Line::same(lanes.double(slot)[0])
        }
    }
}

/// A value of registers that may hold lines.
pub(crate) trait OfLine: Value {
    /// The value of all lanes, if it is the same.
    fn same(lines: &Lines, lanes: &Lanes<'_>, slot: u16) -> Option<Self>;
    /// Writes one value to all lanes.
    fn set_same(lines: &mut Lines, slot: u16, value: Self);
}

/// A value that fills a register.
pub(crate) trait Whole: OfLine + Wrapping {
    fn line(lines: &Lines, lanes: &Lanes<'_>, slot: u16) -> Line<Self>;
    fn set_line(lines: &mut Lines, slot: u16, line: Line<Self>);
}

macro_rules! of_line {
    ($($type:ty, $raw:ty, $unsigned:ty, $get:ident, $file:ident);*) => {$(
        impl OfLine for $type {
            #[inline(always)]
            fn same(lines: &Lines, lanes: &Lanes<'_>, slot: u16) -> Option<Self> {
                lines.$get(lanes, slot).value().map(|raw| raw as $type)
            }
            #[inline(always)]
            fn set_same(lines: &mut Lines, slot: u16, value: Self) {
                let raw = <$raw>::from(value as $unsigned);
                lines.$file[usize::from(slot) % MOST_LINES] = Line::same(raw);
            }
        }
    )*};
}

macro_rules! whole {
    ($($type:ty, $raw:ty, $get:ident, $file:ident);*) => {$(
        impl Whole for $type {
            #[inline(always)]
            fn line(lines: &Lines, lanes: &Lanes<'_>, slot: u16) -> Line<Self> {
                let line = lines.$get(lanes, slot);
                Line { first: line.first as $type, step: line.step as $type }
            }
            #[inline(always)]
            fn set_line(lines: &mut Lines, slot: u16, line: Line<Self>) {
                let raw = Line { first: line.first as $raw, step: line.step as $raw };
                lines.$file[usize::from(slot) % MOST_LINES] = raw;
            }
        }
    )*};
}

of_line!(
    u8, u32, u8, word, words; i8, u32, u8, word, words;
    u16, u32, u16, word, words; i16, u32, u16, word, words;
    u32, u32, u32, word, words; i32, u32, u32, word, words;
    u64, u64, u64, double, doubles; i64, u64, u64, double, doubles
);
whole!(
    u32, u32, word, words; i32, u32, word, words;
    u64, u64, double, doubles; i64, u64, double, doubles
);
