//! The notes of a recorder about the case in progress.

use std::collections::BTreeMap;

use pagewise_hal::{
    Backend, Capabilities, Code, DevicePtr, EventsSince, MemoryEvent, PointerAttribute,
    PoolAttribute, PoolHandle, RangeAttribute, Result, Span, StreamHandle,
};

use super::file::{CaseFile, lines_of};
use super::ids::{Ids, is_about_unknown_memory};
use super::journal::Journal;
use crate::format::{
    AttributeRead, AttributeValue, Attributes, Case, Label, MAX_MAPPED_BYTES, Observed, Op, OpLine,
    PageMap, Part, RecordedOp, Stream,
};
use crate::reader::{MAX_CASE_BYTES, MAX_CASE_OPS, MAX_LINE_BYTES};
use crate::replay::call::{
    POINTER_ATTRIBUTES, POOL_ATTRIBUTES, RANGE_ATTRIBUTES, all_read, number, pointer_read, read,
};
use crate::replay::names::Owners;
use crate::replay::page_map_of;
use crate::writer::line_bytes;

/// The text of a record is shorter, whatever its numbers.
const RECORD_TEXT_BYTES: u64 = 160;

/// A case of a file ends at the next moment without live memory once it is as long as this.
const LONG_CASE_OPS: usize = 10_000;

/// As [`LONG_CASE_OPS`], in bytes of text.
const LONG_CASE_BYTES: u64 = 4 << 20;

/// One operation, with records that have no names yet.
#[derive(Debug)]
struct Entry {
    recorded: RecordedOp,
    events: Vec<MemoryEvent>,
}

impl Entry {
    /// An upper bound of its text.
    fn text_bytes(&self) -> u64 {
        let events = (self.events.len() as u64).saturating_mul(RECORD_TEXT_BYTES);
        line_bytes(&self.recorded).saturating_add(events)
    }
}

/// Attributes of one thing, read one after another: one operation of a trace.
#[derive(Debug)]
struct NotedReads {
    op: Op,
    reads: Vec<(Label, AttributeRead)>,
    /// When the first of them began, on the back end's clock.
    began_ns: u64,
    ns: u64,
}

#[derive(Debug)]
pub(super) struct Log {
    pub(super) ids: Ids,
    capabilities: Capabilities,
    entries: Vec<Entry>,
    reads: Option<NotedReads>,
    /// When the first operation began, on the back end's clock.
    case_began_ns: Option<u64>,
    /// The recorder's place in the back end's records.
    position: u64,
    /// Records that a caller took from the back end before they were noted.
    taken: Vec<MemoryEvent>,
    /// Whether the profiler delivers records yet: see [`crate::replay`].
    profiled: bool,
    /// Whether the program writes memory by accesses that no call declares.
    unknown_contents: bool,
    /// Calls that had an effect and could not be noted.
    pub(super) left_out: u64,
    noting: Noting,
    /// An upper bound of the text of the case.
    text_bytes: u64,
    /// The number of its operations.
    ops: usize,
    /// The file that cases go to as they end; without one they stay here until they are taken.
    file: Option<CaseFile>,
    /// The file that gets each operation as soon as it is noted. None is kept here then.
    journal: Option<Journal>,
    /// Operations of a case that has ended and that no file took.
    ended: Vec<OpLine>,
}

/// Whether calls are noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noting {
    On,
    /// The case is as long as a reader takes it: further calls are left out.
    Full,
    /// The recording has ended.
    Ended,
}

/// The back end's records from a position on, if it reports any.
fn records_since(
    backend: &dyn Backend,
    capabilities: &Capabilities,
    position: u64,
) -> Option<EventsSince> {
    if capabilities.events { backend.events_since(position).ok() } else { None }
}

impl Log {
    /// Records from before belong to no operation.
    pub(super) fn new(backend: &dyn Backend) -> Self {
        let capabilities = backend.capabilities();
        let now = records_since(backend, &capabilities, u64::MAX);
        let position = now.map_or(0, |now| now.position);
        Self {
            ids: Ids::default(),
            capabilities,
            entries: Vec::new(),
            reads: None,
            case_began_ns: None,
            position,
            taken: Vec::new(),
            profiled: false,
            unknown_contents: false,
            left_out: 0,
            noting: Noting::On,
            text_bytes: 0,
            ops: 0,
            file: None,
            journal: None,
            ended: Vec::new(),
        }
    }

    /// Cases go to a file.
    pub(super) fn into_file(self, file: CaseFile) -> Self {
        Self { file: Some(file), ..self }
    }

    /// Operations go to a journal.
    pub(super) fn into_journal(self, journal: Journal) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Before a call that is not a further read of attributes.
    pub(super) fn next_call(&mut self, backend: &dyn Backend) {
        self.end_reads(backend);
        if self.noting != Noting::On {
            // Ids are of no more use, and must not grow.
            self.ids = Ids::default();
        }
    }

    /// Notes an operation that has just ended, what it gave, and what can be seen after it. Reads
    /// in progress were ended before it was carried out.
    pub(super) fn note(&mut self, backend: &dyn Backend, op: Op, observed: Observed, ns: u64) {
        let began_ns = backend.clock_ns().saturating_sub(ns);
        self.note_from(backend, op, observed, began_ns, ns);
    }

    /// Notes an operation that began at a moment of the back end's clock.
    fn note_from(
        &mut self,
        backend: &dyn Backend,
        op: Op,
        mut observed: Observed,
        began_ns: u64,
        ns: u64,
    ) {
        let is_of_others = observed.code == Code::SUCCESS && is_about_unknown_memory(&op);
        if self.noting != Noting::On || is_of_others {
            self.leave_out();
            return;
        }
        let case_began_ns = *self.case_began_ns.get_or_insert(began_ns);
        observed.start_ns = Some(began_ns.saturating_sub(case_began_ns));
        self.profiled |= matches!(op, Op::AllocManaged { .. });
        let events = self.fresh_events(backend);
        observed.ns_profiled = Some(ns);
        observed.host_mapped = self.host_mapped(backend);
        let events = if self.profiled { events } else { Vec::new() };
        if self.unknown_contents && observed.sum.is_some() {
            observed.unstable.push("sum".to_owned());
        }
        self.push(Entry { recorded: RecordedOp { op, observed }, events });
    }

    /// Adds an operation to the case, and ends the case where it has to end, or may.
    fn push(&mut self, mut entry: Entry) {
        if entry.text_bytes() > MAX_LINE_BYTES as u64 {
            // No line holds so many records, so this one does not speak of them.
            entry.events = Vec::new();
            entry.recorded.observed.unstable.push("events".to_owned());
            self.leave_out();
            if entry.text_bytes() > MAX_LINE_BYTES as u64 {
                // A kernel over so many ranges, or a batch of them.
                return;
            }
        }
        let text_bytes = self.text_bytes.saturating_add(entry.text_bytes());
        if text_bytes > MAX_CASE_BYTES || self.ops >= MAX_CASE_OPS {
            self.end_case();
            self.noting = Noting::Full;
            self.leave_out();
            return;
        }
        self.text_bytes = text_bytes;
        self.ops = self.ops.saturating_add(1);
        match &mut self.journal {
            Some(journal) => {
                let Entry { recorded, events } = &entry;
                journal.add(recorded, events, self.ids.buffers(), self.left_out);
            }
            None => self.entries.push(entry),
        }
        let is_long = text_bytes >= LONG_CASE_BYTES || self.ops >= LONG_CASE_OPS;
        let is_file = self.file.is_some() || self.journal.is_some();
        if is_long && is_file && self.ids.is_quiet() {
            self.end_case();
        }
    }

    /// An id for memory that a call imported or opened, or failed to.
    pub(super) fn imported(&mut self, answer: &Result<DevicePtr>) -> u32 {
        let id = self.ids.next_buffer();
        if let Ok(ptr) = *answer {
            self.ids.imported(id, ptr);
        }
        id
    }

    /// The records since the last operation. If the back end no longer has all of them, the
    /// recording is short of them and says so.
    fn fresh_events(&mut self, backend: &dyn Backend) -> Vec<MemoryEvent> {
        let mut events = std::mem::take(&mut self.taken);
        let seen = records_since(backend, &self.capabilities, self.position);
        let Some(seen) = seen else { return events };
        self.position = seen.position;
        if seen.lost > 0 {
            self.leave_out();
        }
        events.extend(seen.events);
        events
    }

    /// The caller is about to take the back end's records: the recorder notes its own first.
    pub(super) fn before_take(&mut self, backend: &dyn Backend) {
        self.taken = self.fresh_events(backend);
    }

    /// From now on the contents of memory are not those that operations wrote.
    pub(super) fn contents_are_unknown(&mut self) {
        self.unknown_contents = true;
    }

    fn host_mapped(&self, backend: &dyn Backend) -> BTreeMap<u32, PageMap> {
        if !self.capabilities.host_page_map {
            return BTreeMap::new();
        }
        let small = self.ids.buffers().filter(|(_, span)| span.bytes <= MAX_MAPPED_BYTES);
        small.filter_map(|(id, span)| Some((id, page_map_of(backend, span)?))).collect()
    }

    /// Ends the case: names its records after the buffers that live now, and forgets everything. It
    /// goes to the file, if there is one.
    fn end_case(&mut self) {
        self.journal.iter_mut().for_each(Journal::end_case);
        let ids = std::mem::take(&mut self.ids);
        let owners = Owners::new(ids.buffers());
        let entries = std::mem::take(&mut self.entries);
        let named = |Entry { mut recorded, events }: Entry| {
            recorded.observed.events = events.iter().map(|event| owners.name(event)).collect();
            recorded
        };
        (self.profiled, self.case_began_ns) = (false, None);
        (self.text_bytes, self.ops) = (0, 0);
        self.ended = lines_of(entries.into_iter().map(named));
        if let Some(file) = &mut self.file
            && !self.ended.is_empty()
            && !file.write(std::mem::take(&mut self.ended))
        {
            self.noting = Noting::Full;
        }
    }

    /// Ends the case and gives it.
    pub(super) fn take_case(&mut self, backend: &dyn Backend, name: String) -> Case {
        self.end_reads(backend);
        match self.noting {
            Noting::On => self.end_case(),
            Noting::Full => self.noting = Noting::On,
            Noting::Ended => {}
        }
        Case { name, line: 2, ops: std::mem::take(&mut self.ended), text_bytes: 0 }
    }

    /// Ends the recording and gives its file, with the last case in it.
    pub(super) fn end(&mut self, backend: &dyn Backend) -> Option<CaseFile> {
        self.end_reads(backend);
        if self.noting == Noting::On {
            self.end_case();
        }
        self.noting = Noting::Ended;
        self.file.take()
    }

    /// A call is not part of the program.
    pub(super) fn leave_out(&mut self) {
        if self.noting != Noting::Ended {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    // ---- attributes ---------------------------------------------------------------------------

    /// Adds a read to those in progress, if it is of the same thing and not there yet.
    fn add_read(&mut self, backend: &dyn Backend, op: Op, one: (Label, AttributeRead), ns: u64) {
        if let Some(reads) = &mut self.reads
            && reads.op == op
            && reads.reads.iter().all(|(name, _)| *name != one.0)
        {
            reads.reads.push(one);
            reads.ns = reads.ns.saturating_add(ns);
            return;
        }
        self.end_reads(backend);
        let began_ns = backend.clock_ns().saturating_sub(ns);
        self.reads = Some(NotedReads { op, reads: vec![one], began_ns, ns });
    }

    /// Notes the reads in progress as one operation.
    pub(super) fn end_reads(&mut self, backend: &dyn Backend) {
        let Some(NotedReads { op, reads, began_ns, ns }) = self.reads.take() else { return };
        let observed = match op {
            // The operation is not failed by attributes that a pool does not have.
            Op::PoolAttributes { .. } => {
                Observed { attributes: Some(Attributes(reads)), ..Observed::default() }
            }
            _ => all_read(reads),
        };
        self.note_from(backend, op, observed, began_ns, ns);
    }

    pub(super) fn range_attribute(
        &mut self,
        backend: &dyn Backend,
        span: Span,
        attribute: RangeAttribute,
        answer: &Result<i32>,
        ns: u64,
    ) {
        let Some(name) = name_of(&RANGE_ATTRIBUTES, attribute) else { return };
        let value = answer.clone().map(|value| AttributeValue::Number(i64::from(value)));
        let op = Op::RangeAttributes { part: self.ids.part(span), slots: None };
        self.add_read(backend, op, read(name, value), ns);
    }

    pub(super) fn range_accessed_by(
        &mut self,
        backend: &dyn Backend,
        (span, slots): (Span, Option<u32>),
        answer: Result<Vec<i32>>,
        ns: u64,
    ) {
        let op = Op::RangeAttributes { part: self.ids.part(span), slots };
        let one = read("accessed_by", answer.map(AttributeValue::List));
        self.add_read(backend, op, one, ns);
    }

    pub(super) fn pointer_attribute(
        &mut self,
        backend: &dyn Backend,
        ptr: DevicePtr,
        attribute: PointerAttribute,
        answer: &Result<u64>,
        ns: u64,
    ) {
        let Some(name) = name_of(&POINTER_ATTRIBUTES, attribute) else { return };
        let Part { buf, offset, .. } = self.ids.part(Span::new(ptr, 0));
        let one = pointer_read(name, ptr, attribute, answer.clone());
        self.add_read(backend, Op::PointerAttributes { buf, offset }, one, ns);
    }

    pub(super) fn pool_attribute(
        &mut self,
        backend: &dyn Backend,
        pool: PoolHandle,
        attribute: PoolAttribute,
        answer: &Result<u64>,
        ns: u64,
    ) {
        let (Some(name), Some(pool)) = (name_of(&POOL_ATTRIBUTES, attribute), self.ids.pool(pool))
        else {
            return;
        };
        let one = read(name, answer.clone().map(number));
        self.add_read(backend, Op::PoolAttributes { pool }, one, ns);
    }
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], attribute: T) -> Option<&'static str> {
    names.iter().find(|(_, known)| *known == attribute).map(|&(name, _)| name)
}

/// The stream as a trace knows it.
pub(super) fn stream_of(stream: StreamHandle) -> Stream {
    if stream.is_legacy() { Stream::Legacy } else { Stream::NonBlocking }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::{FaultAccess, Processor};

    use super::*;
    use crate::format::Observed;

    #[test]
    fn no_record_s_text_is_longer_than_what_is_counted_for_it() {
        let (all, processor) = (u64::MAX, Processor::device(i32::MAX as u32));
        let access = FaultAccess::Prefetch;
        let owners = Owners::new([(1_000_000, Span::new(DevicePtr(1), all - 1))]);
        let counted = |observed| line_bytes(&RecordedOp { op: Op::Sleep { ms: 1 }, observed });
        for event in [
            MemoryEvent::Thrashing { address: all, bytes: all, gpus: 1 << 63, host: true },
            MemoryEvent::Throttling { address: all, processor, duration_ns: all },
            MemoryEvent::GpuFault {
                device: processor,
                address: all,
                access,
                merged: all,
                duration_ns: all,
            },
        ] {
            let events = |count| vec![owners.name(&event); count];
            let text = |count| counted(Observed { events: events(count), ..Observed::default() });
            assert!(text(2) - text(1) < RECORD_TEXT_BYTES, "{event:?}");
        }
    }
}
