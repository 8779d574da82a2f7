//! The names of buffers, for messages.
//!
//! One table for the process has them by address, because several machines can hold one back end,
//! with and without wrappers around it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewise_hal::{DevicePtr, Span};
use rangemap::RangeSet;

use crate::Machine;

/// The name of a buffer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// The user's.
    Given(Arc<str>),
    /// The place in the source that made the buffer.
    MadeAt(&'static Location<'static>),
}

impl Name {
    /// The most characters of a name, so that messages stay readable.
    const LENGTH_MAX: usize = 100;

    /// The place that called the function which calls this, if both are `#[track_caller]`.
    #[track_caller]
    pub(crate) fn of_caller() -> Self {
        Self::MadeAt(Location::caller())
    }

    /// A name as it fits into a line: without control characters, and not too long.
    pub(crate) fn given(name: &str) -> Self {
        let shown = name.chars().map(|c| if c.is_control() { ' ' } else { c });
        Self::Given(shown.take(Self::LENGTH_MAX).collect::<String>().into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(name) => f.write_str(name),
            Self::MadeAt(place) => write!(f, "{}:{}", place.file(), place.line()),
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bytes of a named buffer as messages show them: `weights`, or `weights[4096..8192]` by the first
/// byte and the byte after the last.
pub(crate) struct Part<'n> {
    pub(crate) name: &'n dyn fmt::Display,
    pub(crate) buffer: Span,
    pub(crate) span: Span,
}

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, buffer, span } = self;
        let offset = |address: u64| address.saturating_sub(buffer.ptr.0).min(buffer.bytes);
        let (first, end) = (offset(span.ptr.0), offset(span.ptr.0.saturating_add(span.bytes)));
        match (first, end) {
            (0, end) if end == buffer.bytes => name.fmt(f),
            (first, end) => write!(f, "{name}[{first}..{end}]"),
        }
    }
}

/// A back end by its address, which tells it from others while a [`Machine`] holds it.
type BackendId = usize;

fn id_of(machine: &Machine) -> BackendId {
    std::ptr::from_ref(machine.backend()).addr()
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    first: u64,
    bytes: u64,
    name: Name,
    backend: BackendId,
}

impl Entry {
    fn touches(&self, first: u64, end: u64) -> bool {
        self.first < end && self.first.saturating_add(self.bytes) > first
    }
}

/// The address of a buffer, and its number in the order in which buffers were made: two can be of
/// the same foreign memory.
type Key = (u64, u64);

#[derive(Debug, Default)]
struct Table {
    live: BTreeMap<Key, Entry>,
    /// The bytes of the longest buffer that there was: no other one reaches further.
    longest: u64,
    made: u64,
    /// How many observations of each back end want to know buffers that go.
    observers: BTreeMap<BackendId, u64>,
    /// Those that went since the first of these began.
    gone: BTreeSet<Entry>,
}

impl Table {
    /// The most buffers that are known after they went. Later ones are shown by address.
    const GONE_MAX: usize = 4096;
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    live: BTreeMap::new(),
    longest: 0,
    made: 0,
    observers: BTreeMap::new(),
    gone: BTreeSet::new(),
});

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name in the table, which leaves it when this goes.
#[derive(Debug)]
pub(crate) struct Listed {
    entry: Entry,
    key: Key,
}

impl Listed {
    pub(crate) fn new(machine: &Machine, span: Span, name: Name) -> Self {
        let (first, bytes, backend) = (span.ptr.0, span.bytes, id_of(machine));
        let entry = Entry { first, bytes, name, backend };
        let mut table = table();
        table.longest = table.longest.max(bytes);
        table.made = table.made.wrapping_add(1);
        let key = (first, table.made);
        table.live.insert(key, entry.clone());
        Self { entry, key }
    }

    pub(crate) fn rename(&mut self, name: Name) {
        self.entry.name = name;
        table().live.insert(self.key, self.entry.clone());
    }

    pub(crate) fn name(&self) -> &Name {
        &self.entry.name
    }

    /// Bytes of the buffer by its name.
    pub(crate) fn part(&self, span: Span) -> Part<'_> {
        let Entry { first, bytes, name, .. } = &self.entry;
        Part { name, buffer: Span::new(DevicePtr(*first), *bytes), span }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut table = table();
        let entry = table.live.remove(&self.key);
        if table.gone.len() < Table::GONE_MAX && table.observers.contains_key(&self.entry.backend) {
            table.gone.extend(entry);
        }
    }
}

/// Buffers of a machine that go are remembered while one of these exists.
#[derive(Debug)]
pub(crate) struct Remembering(Machine);

impl Remembering {
    pub(crate) fn begin(machine: &Machine) -> Self {
        let mut table = table();
        let observers = table.observers.entry(id_of(machine)).or_default();
        *observers = observers.saturating_add(1);
        Self(machine.clone())
    }

    /// The buffers with bytes from the first address to before the second one, by address, none
    /// twice: those of the machine, also if they went meanwhile, and those of other holders of its
    /// back end, such as wrappers. Address space belongs to the process, so an address that is
    /// both in a buffer of the machine and in one of another is of the first.
    pub(crate) fn buffers(&self, first: u64, end: u64) -> Vec<(Span, Name)> {
        let (table, backend) = (table(), id_of(&self.0));
        let reach = (first.saturating_sub(table.longest), 0).min((end, 0));
        let live = table.live.range(reach..(end, 0)).map(|(_, entry)| entry);
        let gone = table.gone.iter().filter(|entry| entry.backend == backend);
        let touched = live.chain(gone).filter(|entry| entry.touches(first, end));
        let (own, others): (Vec<_>, Vec<_>) = touched.partition(|entry| entry.backend == backend);
        let taken: RangeSet<u64> = own.iter().map(|one| range_of(one)).collect();
        let apart = others.into_iter().filter(|other| !taken.overlaps(&range_of(other)));
        let found: BTreeSet<_> = own.iter().copied().chain(apart).collect();
        let named = |one: &Entry| (Span::new(DevicePtr(one.first), one.bytes), one.name.clone());
        found.into_iter().map(named).collect()
    }
}

/// The addresses of a buffer, which has at least one byte.
fn range_of(entry: &Entry) -> std::ops::Range<u64> {
    entry.first..entry.first.saturating_add(entry.bytes)
}

impl Drop for Remembering {
    fn drop(&mut self) {
        let (mut table, backend) = (table(), id_of(&self.0));
        let observers = table.observers.get(&backend).copied().unwrap_or_default();
        if observers > 1 {
            table.observers.insert(backend, observers.saturating_sub(1));
        } else {
            table.observers.remove(&backend);
            table.gone.retain(|entry| entry.backend != backend);
        }
    }
}
