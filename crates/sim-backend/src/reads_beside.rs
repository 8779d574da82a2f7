//! Reads of attributes beside a long call of another thread, which they do not wait for.
//!
//! A call that changes nothing more that reads ask for lends the book, and takes it back when it
//! lets the machine go. A read that finds the machine taken and the book lent reads there. It answers
//! as if it came right after the call under way: the call will change nothing that it asks for, and
//! the time that it takes passes when that call has ended, before any other begins.

use crate::book::{Book, LentBook};
use crate::cost::Call;
use crate::patient::Mutex;
use crate::refusal::Checked;

/// The groups of reads that are kept in order until the call under way ends. Reads beyond that count
/// as if those of one kind came together, which may take less time.
pub(crate) const GROUPS_MAX: usize = 1 << 14;

/// The kinds of reads: of ranges and of addresses, answered and refused.
const KINDS: usize = 4;

/// So few groups are counted while no read comes between.
const FEW_GROUPS: usize = 64;

/// Reads that are alike, one after another. Their time has yet to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadGroup {
    pub(crate) call: Call,
    pub(crate) refused: bool,
    pub(crate) times: u64,
}

/// The book while a call lends it, and the reads that were made in it.
#[derive(Debug, Default)]
pub(crate) struct ReadsBeside(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    book: Option<LentBook>,
    made: Vec<ReadGroup>,
}

impl State {
    fn note(&mut self, call: Call, refused: bool) {
        let considered = if self.made.len() < GROUPS_MAX { 1 } else { KINDS };
        let mut last = self.made.iter_mut().rev().take(considered);
        match last.find(|group| (group.call, group.refused) == (call, refused)) {
            Some(group) => group.times = group.times.saturating_add(1),
            None => self.made.push(ReadGroup { call, refused, times: 1 }),
        }
    }
}

impl ReadsBeside {
    /// The call under way lends the book.
    pub(crate) fn lend(&self, book: LentBook) {
        self.0.lock().book = Some(book);
    }

    /// A read: its answer, if a call lends the book.
    pub(crate) fn read<T>(
        &self,
        call: Call,
        answer: impl FnOnce(Book<'_>) -> Checked<T>,
    ) -> Option<Checked<T>> {
        let mut state = self.0.lock();
        let answer = answer(state.book.as_ref()?.as_book());
        state.note(call, answer.is_err());
        Some(answer)
    }

    /// Hands over the reads that were made, in order. Takes the book back if they are few, or if it
    /// has to. `None` if it has the book and there are no more.
    pub(crate) fn collect(&self, has_to_end: bool) -> Option<Vec<ReadGroup>> {
        let mut state = self.0.lock();
        if has_to_end || state.made.len() <= FEW_GROUPS {
            state.book = None;
        }
        let is_over = state.book.is_none() && state.made.is_empty();
        (!is_over).then(|| std::mem::take(&mut state.made))
    }
}
