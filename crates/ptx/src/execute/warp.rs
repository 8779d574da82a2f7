//! A warp: its registers, and the groups of lanes that run together.
//!
//! Lanes that are at the same instruction are one fragment. A branch splits a fragment; fragments
//! that meet become one. Of those that can run, the deepest call runs first, and then the lowest
//! instruction: lanes that are behind catch up. A fragment that loops while others could run gives
//! way to them now and then, so that a lane which spins on a lock never starves its owner.

use super::cluster::Arrivals;
use crate::code::{File, Lines, MOST_LINES, Program, Register, WIDTH, is_constant};

/// Weights of loop ends and of atomics, after which a looping fragment gives way.
const PATIENCE: u32 = 4096;
/// The weight of an atomic or volatile access.
pub(super) const SPIN: u32 = 128;
/// How many turns the longest waiting fragment gets in a row.
const TURNS: u32 = 64;

/// Where a function's registers and local memory begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Frame {
    /// The index of the function in the program.
    pub(super) function: u32,
    pub(super) words: u32,
    pub(super) doubles: u32,
    pub(super) predicates: u32,
    /// The frame in local memory.
    pub(super) local: u32,
    /// Where the next frame begins.
    pub(super) top: u32,
}

/// Where a call returns to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Return {
    pub(super) pc: u32,
    pub(super) frame: Frame,
    /// The call: its results are copied.
    pub(super) call: u32,
}

/// A barrier, and how often it was complete. The cluster's barrier has an index, too.
///
/// One number has both, so that a state is copied by its registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Round(u64);

impl Round {
    pub(super) fn of(barrier: u8, count: u64) -> Self {
        Self(count << 8 | u64::from(barrier))
    }

    pub(super) fn barrier(self) -> u8 {
        self.0 as u8
    }

    /// Whether the barrier was complete more often.
    pub(super) fn is_over(self, count: u64) -> bool {
        Self::of(self.barrier(), count) != self
    }
}

/// Whether a fragment can run, or the reason that it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    /// It can run.
    #[default]
    Ready,
    /// It waits until the barrier's count of completions differs.
    Barrier(Round),
    /// It waits for other lanes at an instruction that names them.
    Lanes,
    /// It waits for the bytes of an access.
    Memory,
}

/// Lanes that run together.
#[derive(Debug, Clone, Default)]
pub(super) struct Fragment {
    pub(super) pc: u32,
    pub(super) mask: u32,
    pub(super) frame: Frame,
    pub(super) stack: Vec<Return>,
    pub(super) state: State,
    /// When it ran last.
    pub(super) ran: u64,
    /// How long it has been looping.
    pub(super) spin: u32,
    /// Whether the lanes that it waits for can never come.
    pub(super) alone: bool,
    /// A barrier: the fragment reads its result when it runs again.
    pub(super) barrier: Option<u8>,
}

impl Fragment {
    /// Begins a kernel, in the buffers of another fragment.
    fn begin(&mut self, pc: u32, mask: u32, frame: Frame) {
        let Self { pc: at, mask: lanes, frame: own, stack, state, ran, spin, alone, barrier } =
            self;
        (*at, *lanes, *own) = (pc, mask, frame);
        stack.clear();
        (*state, *ran, *spin) = (State::Ready, 0, 0);
        (*alone, *barrier) = (false, None);
    }

    /// Keeps these lanes, and gives the others as a fragment at another position.
    pub(super) fn split_off(&mut self, lanes: u32, pc: u32) -> Self {
        let others = Self { mask: self.mask & !lanes, pc, ..self.clone() };
        self.mask = lanes;
        others
    }

    /// Whether it is in the kernel itself, and not in a function that is called.
    #[inline(always)]
    pub(super) fn is_kernel(&self) -> bool {
        self.stack.is_empty()
    }
}

/// Bytes at an address that is a multiple of 16.
#[derive(Debug, Default)]
pub(super) struct Bytes(Vec<u128>);

impl Bytes {
    /// Holds a copy of the bytes, and zeros behind them.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .chunks(16)
            .map(|chunk| {
                let mut whole = [0; 16];
                whole[..chunk.len()].copy_from_slice(chunk);
                u128::from_ne_bytes(whole)
            })
            .collect();
    }

    /// Holds so many bytes, and all are zero.
    #[inline(always)]
    pub(super) fn begin(&mut self, bytes: usize) {
        let count = bytes.div_ceil(16);
        if self.0.len() != count {
            // New memory takes none of the host's before the kernel uses it.
            self.0 = vec![0; count];
        } else if count > 0 {
            self.0.fill(0);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len() * 16
    }

    #[inline(always)]
    pub(super) fn pointer(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// A warp.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "a fragment leaves its list and returns at every turn")]
pub(super) struct Warp {
    pub(super) index: u32,
    pub(super) words: Vec<[u32; WIDTH]>,
    pub(super) doubles: Vec<[u64; WIDTH]>,
    /// The lines that registers of the kernel itself hold.
    pub(super) lines: Lines,
    pub(super) predicates: Vec<u32>,
    /// The lanes that have not ended.
    pub(super) live: u32,
    pub(super) fragments: Vec<Box<Fragment>>,
    /// Places of fragments that have ended.
    spare: Vec<Box<Fragment>>,
    pub(super) arrivals: Arrivals,
    /// Local memory: the lanes one after another.
    local: Bytes,
    /// The bytes of one lane's local memory.
    pub(super) local_bytes: u32,
    clock: u64,
    turns: u32,
}

/// Makes a file of registers `count` long, with no value in those from `first` on.
#[inline(always)]
fn empty<T: Copy>(file: &mut Vec<T>, count: usize, first: usize, none: T) {
    if file.len() != count {
        file.clear();
        file.resize(count, none);
    } else if count > first {
        // Not of no register: a call that writes nothing where no page is takes longest of all.
        file[first..].fill(none);
    }
}

/// The values of registers when a warp begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Old<'a> {
    /// All are zero: it is not known which the kernel reads before it writes them.
    Zero,
    /// Those that the kernel may read before it writes them are zero. The others may be those of a warp
    /// before.
    ZeroIn(&'a [Register]),
}

impl Old<'_> {
    /// The kernel writes each register before it reads it.
    pub(super) const ANY: Self = Self::ZeroIn(&[]);
}

impl Warp {
    /// Begins a kernel with `lanes` threads.
    pub(super) fn begin(&mut self, program: &Program, index: u32, lanes: u32, old: Old<'_>) {
        let kernel = &program.functions[0];
        self.index = index;
        let (words, doubles) = (kernel.files.words as usize, kernel.files.doubles as usize);
        self.lines.begin(words, doubles);
        // The lanes of registers that hold lines are written when they are needed.
        let (lines, first, zeros) = match old {
            Old::Zero => (MOST_LINES, 0, &[][..]),
            Old::ZeroIn(zeros) => (usize::MAX, usize::MAX, zeros),
        };
        empty(&mut self.words, words, lines, [0; WIDTH]);
        empty(&mut self.doubles, doubles, lines, [0; WIDTH]);
        empty(&mut self.predicates, kernel.files.predicates as usize, first, 0);
        zeros.iter().for_each(|register| self.clear_lanes(*register));
        self.live = if lanes >= 32 { u32::MAX } else { (1 << lanes) - 1 };
        self.begin_local(kernel.frame);
        (self.clock, self.turns) = (0, 0);
        self.arrivals = Arrivals::default();
        self.end_fragments();
        let mut first = self.spare.pop().unwrap_or_default();
        first.begin(kernel.start, self.live, Frame { top: kernel.frame, ..Frame::default() });
        self.fragments.push(first);
    }

    /// The lanes of a register are zero.
    fn clear_lanes(&mut self, Register { file, place }: Register) {
        let place = usize::from(place);
        match file {
            File::Word => self.words[place] = [0; WIDTH],
            File::Double => self.doubles[place] = [0; WIDTH],
            File::Predicate => self.predicates[place] = 0,
            File::ConstantWord | File::ConstantDouble => {}
        }
    }

    /// A fragment in a place.
    fn placed(&mut self, fragment: Fragment) -> Box<Fragment> {
        match self.spare.pop() {
            Some(mut place) => {
                *place = fragment;
                place
            }
            None => Box::new(fragment),
        }
    }

    /// The fragment of a warp with all lanes together in the kernel itself, which no other takes turns with.
    #[inline(always)]
    pub(super) fn together(&self) -> Option<&Fragment> {
        let [fragment] = &self.fragments[..] else { return None };
        let is_whole = fragment.mask == u32::MAX && fragment.is_kernel() && !self.taking_turns();
        is_whole.then_some(fragment)
    }

    /// Adds a fragment.
    pub(super) fn add(&mut self, fragment: Fragment) {
        let place = self.placed(fragment);
        self.fragments.push(place);
    }

    /// All of its threads have ended.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        self.live = 0;
        self.end_fragments();
    }

    /// All fragments have ended: others may use their places.
    #[inline(always)]
    pub(super) fn end_fragments(&mut self) {
        // Mostly one: no call to move several.
        while let Some(fragment) = self.fragments.pop() {
            self.spare.push(fragment);
        }
    }

    /// A fragment has ended: another one may use its place.
    pub(super) fn give_back(&mut self, fragment: Box<Fragment>) {
        self.spare.push(fragment);
    }

    /// The bytes that it takes, without local memory.
    #[cfg(test)]
    pub(super) fn bytes_without_local(&self) -> usize {
        let fragments = self.fragments.capacity() + self.spare.capacity();
        let places = self.fragments.len() + self.spare.len();
        size_of::<Self>()
            + self.words.capacity() * size_of::<[u32; WIDTH]>()
            + self.doubles.capacity() * size_of::<[u64; WIDTH]>()
            + self.predicates.capacity() * size_of::<u32>()
            + fragments * size_of::<Box<Fragment>>()
            + places * size_of::<Fragment>()
    }

    /// A register of 32 bits of a frame to write. It is no constant.
    #[inline(always)]
    pub(super) fn word_mut(&mut self, frame: &Frame, slot: u16) -> &mut [u32; WIDTH] {
        &mut self.words[frame.words as usize + usize::from(slot)]
    }

    /// A register of 32 bits of a frame; `None` if it is a constant.
    #[inline(always)]
    pub(super) fn word(&self, frame: &Frame, slot: u16) -> Option<&[u32; WIDTH]> {
        (!is_constant(slot)).then(|| &self.words[frame.words as usize + usize::from(slot)])
    }

    /// Makes registers for a frame.
    pub(super) fn reserve(&mut self, words: u32, doubles: u32, predicates: u32) {
        if self.words.len() < words as usize {
            self.words.resize(words as usize, [0; WIDTH]);
        }
        if self.doubles.len() < doubles as usize {
            self.doubles.resize(doubles as usize, [0; WIDTH]);
        }
        if self.predicates.len() < predicates as usize {
            self.predicates.resize(predicates as usize, 0);
        }
    }

    /// Local memory has this many bytes for each lane, and all are zero.
    #[inline(always)]
    fn begin_local(&mut self, bytes: u32) {
        self.local_bytes = bytes.next_multiple_of(16);
        self.local.begin(self.local_bytes as usize * WIDTH);
    }

    /// Makes `bytes` bytes of local memory for each lane.
    pub(super) fn reserve_local(&mut self, bytes: u32) {
        if bytes <= self.local_bytes {
            return;
        }
        let grown = if self.local_bytes == 0 { bytes } else { bytes.next_power_of_two() };
        let grown = grown.next_multiple_of(16);
        let mut new = Bytes::default();
        new.begin(grown as usize * WIDTH);
        let (from, to) = (self.local.pointer(), new.pointer());
        for lane in 0..WIDTH {
            // SAFETY: both hold 32 lanes of their size, and the old size is the smaller one.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from.add(lane * self.local_bytes as usize),
                    to.add(lane * grown as usize),
                    self.local_bytes as usize,
                );
            }
        }
        (self.local, self.local_bytes) = (new, grown);
    }

    #[inline(always)]
    /// Where the bytes of a lane's local memory are. `offset + bytes` is at most `local_bytes`.
    pub(super) fn local_pointer(&mut self, lane: usize, offset: u64) -> *mut u8 {
        debug_assert!(
            offset <= u64::from(self.local_bytes)
                && self.local.len() >= WIDTH * self.local_bytes as usize
        );
        self.local.pointer().wrapping_add(lane * self.local_bytes as usize + offset as usize)
    }

    /// Takes the fragment that runs next out of the warp.
    pub(super) fn pick(&mut self) -> Option<Box<Fragment>> {
        if self.fragments.len() == 1 {
            let ready = self.fragments[0].state == State::Ready;
            return if ready { self.fragments.pop() } else { self.pick_alone() };
        }
        let looping = self.fragments.iter().any(|f| f.state == State::Ready && f.spin > PATIENCE);
        if looping && self.turns == 0 {
            self.turns = TURNS;
            for fragment in &mut self.fragments {
                fragment.spin = 0;
            }
        }
        let ready = self.fragments.iter().enumerate().filter(|(_, f)| f.state == State::Ready);
        let index = if self.turns > 0 {
            self.turns -= 1;
            ready.min_by_key(|(_, f)| f.ran).map(|(index, _)| index)
        } else {
            ready.min_by_key(|(_, f)| (usize::MAX - f.stack.len(), f.pc)).map(|(index, _)| index)
        };
        let Some(index) = index else { return self.pick_alone() };
        let mut fragment = self.fragments.swap_remove(index);
        self.merge(&mut fragment);
        self.clock += 1;
        fragment.ran = self.clock;
        Some(fragment)
    }

    /// If all fragments wait for lanes or barriers that cannot come, one goes on without them: the
    /// program breaks the rules of the instruction, and a GPU goes on, too.
    fn pick_alone(&mut self) -> Option<Box<Fragment>> {
        if self.fragments.iter().any(|f| matches!(f.state, State::Ready | State::Memory)) {
            return None;
        }
        let waiting = self.fragments.iter().enumerate().filter(|(_, f)| f.state == State::Lanes);
        let index = waiting.min_by_key(|(_, f)| f.pc).map(|(index, _)| index)?;
        let mut fragment = self.fragments.swap_remove(index);
        fragment.state = State::Ready;
        fragment.alone = true;
        Some(fragment)
    }

    /// Joins fragments that are where this one is.
    pub(super) fn merge(&mut self, fragment: &mut Fragment) {
        let mut index = 0;
        while index < self.fragments.len() {
            let other = &self.fragments[index];
            let meets = other.pc == fragment.pc
                && matches!(other.state, State::Ready | State::Lanes)
                && other.frame == fragment.frame
                && other.barrier == fragment.barrier
                && other.stack == fragment.stack;
            if meets {
                fragment.mask |= other.mask;
                fragment.spin = 0;
                let other = self.fragments.swap_remove(index);
                self.give_back(other);
            } else {
                index += 1;
            }
        }
    }

    /// The lowest instruction here or ahead where another fragment waits to be joined.
    pub(super) fn meeting(&self, fragment: &Fragment) -> u32 {
        let mut lowest = u32::MAX;
        for other in &self.fragments {
            if matches!(other.state, State::Ready | State::Lanes)
                && other.stack.len() == fragment.stack.len()
                && other.pc >= fragment.pc
            {
                lowest = lowest.min(other.pc);
            }
        }
        lowest
    }

    /// The lowest position at which another fragment is that this one may meet or has to let go first; `None`
    /// if one is behind it.
    pub(super) fn next_ahead(&self, fragment: &Fragment) -> Option<u32> {
        if self.taking_turns() {
            return None;
        }
        let mut lowest = u32::MAX;
        for other in &self.fragments {
            match (other.state, other.is_kernel()) {
                (State::Ready | State::Lanes, true) => lowest = lowest.min(other.pc),
                (State::Ready, false) => return None,
                _ => {}
            }
        }
        (fragment.pc <= lowest).then_some(lowest)
    }

    /// Whether the turns of waiting fragments are on: a fragment then runs for a short time.
    pub(super) fn taking_turns(&self) -> bool {
        self.turns > 0
    }
}
