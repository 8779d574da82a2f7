//! Places of a program: for what calls read and what they answer, one for each parameter.

/// Numbers of a call that gets places are below this: lengths of arrays, and of items.
pub(super) const FEW: u64 = 9;

/// The words of a place: [`FEW`] of the longest structure, and more.
const ROOM_WORDS: usize = 512;

/// How many places there are: one for each parameter, and one more.
const ROOMS: usize = 17;

/// The places, all zeros before a call.
#[derive(Debug)]
pub(super) struct Rooms {
    words: Box<[u64]>,
    used: [bool; ROOMS],
}

impl Rooms {
    /// The memory of a program's places.
    pub(super) fn memory() -> Box<[u64]> {
        vec![0; ROOM_WORDS * ROOMS].into_boxed_slice()
    }

    /// Takes a program's places, for one call.
    pub(super) fn take(memory: &mut Box<[u64]>) -> Self {
        Self { words: std::mem::take(memory), used: [false; ROOMS] }
    }

    /// Cleans the places that were used, and gives all back.
    pub(super) fn give_back(mut self, memory: &mut Box<[u64]>) {
        for (at, _) in self.used.iter().enumerate().filter(|(_, used)| **used) {
            self.words[at * ROOM_WORDS..][..ROOM_WORDS].fill(0);
        }
        *memory = self.words;
    }

    /// One place, to be filled before a call may use it.
    pub(super) fn room(&mut self, at: usize) -> &mut [u64] {
        &mut self.words[at * ROOM_WORDS..][..ROOM_WORDS]
    }

    /// The address of one place, through which a call may use it.
    pub(super) fn address(&mut self, at: usize) -> u64 {
        self.used[at] = true;
        self.words.as_mut_ptr().wrapping_add(at * ROOM_WORDS).expose_provenance() as u64
    }

    /// The first word of a place, as the call left it.
    pub(super) fn first(&self, at: usize) -> u64 {
        // SAFETY: the place is within the memory of this value. The call may have written it
        // through its address, so it is read the same way.
        unsafe { std::ptr::read_volatile(self.words.as_ptr().wrapping_add(at * ROOM_WORDS)) }
    }
}
