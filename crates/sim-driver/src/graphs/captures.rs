//! Captures: work of a stream becomes nodes of a graph in place of running.
//!
//! The answers are those of driver 580 on an H200 (`tests/data/captures.tsv`).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use pagewise_hal::Code;

use crate::graphs::codes::{
    CAPTURED_EVENT, ILLEGAL_STATE, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_ISOLATION, STREAM_CAPTURE_MERGE, STREAM_CAPTURE_UNMATCHED,
    STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_WRONG_THREAD,
};
use crate::outcome::Outcome;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`
const GLOBAL: c_int = 0;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`
const THREAD_LOCAL: c_int = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
pub(crate) const RELAXED: c_int = 2;

thread_local! {
    /// The number of the thread, unique in the process.
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    /// The thread's capture mode.
    static MODE: Cell<c_int> = const { Cell::new(GLOBAL) };
}

/// The number of this thread.
pub(crate) fn this_thread() -> u64 {
    THREAD.with(|thread| *thread)
}

/// Sets the capture mode of this thread and gives the one before.
pub(crate) fn exchange_mode(mode: c_int) -> c_int {
    MODE.replace(mode)
}

/// A stream that may capture. The handle of the per-thread stream is one stream in each context and
/// thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) handle: u64,
    pub(crate) context: usize,
    pub(crate) thread: u64,
    /// Whether work of the legacy default stream waits for it.
    pub(crate) blocks: bool,
}

impl Key {
    /// The legacy default stream, which takes part in no capture.
    pub(crate) const LEGACY: Self = Self { handle: 0, context: 0, thread: 0, blocks: false };
}

/// One capture.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The graph that gets the nodes.
    pub(crate) graph: usize,
    /// Whether the graph came to be with the capture.
    pub(crate) makes_graph: bool,
    mode: c_int,
    thread: u64,
    origin: Key,
    pub(crate) is_invalid: bool,
    /// The nodes that the next node of each stream depends on.
    pub(crate) tips: BTreeMap<Key, BTreeSet<usize>>,
    /// Tips as an array for the caller, and zeros for the data of as many edges.
    pub(crate) listed: (Vec<usize>, Vec<u64>),
}

/// The end of a capture.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) capture: Capture,
    /// The reason why there is no graph.
    pub(crate) outcome: Outcome,
}

/// All captures.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    running: BTreeMap<u64, Capture>,
    last_id: u64,
    /// The capture and the nodes that an event was recorded after.
    events: BTreeMap<u64, (u64, BTreeSet<usize>)>,
    /// Events that were recorded, outside of captures.
    recorded: BTreeSet<u64>,
}

impl Captures {
    /// Begins a capture.
    pub(crate) fn begin(
        &mut self,
        key: Key,
        mode: c_int,
        (graph, makes_graph): (usize, bool),
        tips: BTreeSet<usize>,
    ) {
        self.last_id = self.last_id.saturating_add(1);
        let capture = Capture {
            graph,
            makes_graph,
            mode,
            thread: this_thread(),
            origin: key,
            is_invalid: false,
            tips: BTreeMap::from([(key, tips)]),
            listed: (Vec::new(), Vec::new()),
        };
        self.running.insert(self.last_id, capture);
    }

    /// The capture that a stream takes part in, with its number.
    pub(crate) fn of(&self, key: Key) -> Option<(u64, &Capture)> {
        let mut running = self.running.iter();
        running.find(|(_, capture)| capture.tips.contains_key(&key)).map(|(&id, one)| (id, one))
    }

    /// The same, to change it.
    pub(crate) fn of_mut(&mut self, key: Key) -> Option<&mut Capture> {
        self.running.values_mut().find(|capture| capture.tips.contains_key(&key))
    }

    /// The graph of a stream's capture, and the nodes that the next one depends on.
    ///
    /// # Errors
    /// `CUDA_ERROR_ILLEGAL_STATE` if the stream does not capture.
    pub(crate) fn place(&self, key: Key) -> Outcome<(usize, Vec<usize>)> {
        let (_, capture) = self.of(key).ok_or(ILLEGAL_STATE)?;
        let tips = capture.tips.get(&key).into_iter().flatten().copied().collect();
        Ok((capture.graph, tips))
    }

    /// A stream has a new last node.
    pub(crate) fn advance(&mut self, key: Key, node: usize) {
        if let Some(capture) = self.of_mut(key) {
            capture.tips.insert(key, BTreeSet::from([node]));
        }
    }

    /// Refuses work of a stream with an invalidated capture.
    pub(crate) fn check(&self, key: Key) -> Outcome {
        match self.of(key) {
            Some((_, capture)) if capture.is_invalid => Err(STREAM_CAPTURE_INVALIDATED),
            _ => Ok(()),
        }
    }

    /// Refuses a call for a stream that captures, and invalidates the capture.
    pub(crate) fn refuse(&mut self, key: Key) -> Outcome {
        match self.of_mut(key) {
            Some(capture) => {
                capture.is_invalid = true;
                Err(STREAM_CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }

    /// Invalidates the captures of some kind; fails with a code if there are any.
    fn invalidate(&mut self, code: c_int, is_meant: impl Fn(&Capture) -> bool) -> Outcome {
        let mut answer = Ok(());
        for capture in self.running.values_mut().filter(|capture| is_meant(capture)) {
            capture.is_invalid = true;
            answer = Err(code);
        }
        answer
    }

    /// Refuses work of the legacy default stream of a context while a stream that it waits for
    /// captures.
    pub(crate) fn check_legacy(&mut self, context: usize) -> Outcome {
        let waits = |key: &Key| key.blocks && key.context == context;
        self.invalidate(STREAM_CAPTURE_IMPLICIT, |capture| capture.tips.keys().any(waits))
    }

    /// The same without an effect: a question about the legacy stream.
    pub(crate) fn asks_legacy(&self, context: usize) -> Outcome {
        let waits = |key: &Key| key.blocks && key.context == context;
        let mut running = self.running.values();
        if running.any(|capture| capture.tips.keys().any(waits)) {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        Ok(())
    }

    /// Refuses a call that waits for a whole context while a stream of it captures.
    pub(crate) fn check_context(&mut self, context: usize) -> Outcome {
        let is_in = |key: &Key| key.context == context;
        self.invalidate(STREAM_CAPTURE_UNSUPPORTED, |capture| capture.tips.keys().any(is_in))
    }

    /// Refuses a call that is unsafe beside a capture, as the modes of this thread and of the
    /// captures say.
    pub(crate) fn check_unsafe(&mut self) -> Outcome {
        let (thread, mode) = (this_thread(), MODE.get());
        if mode == RELAXED {
            return Ok(());
        }
        self.invalidate(STREAM_CAPTURE_UNSUPPORTED, |capture| {
            let own = capture.thread == thread && capture.mode != RELAXED;
            own || (mode != THREAD_LOCAL && capture.mode == GLOBAL)
        })
    }

    /// An event is recorded: in a stream that captures, only for that capture.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`
    pub(crate) fn record(&mut self, event: u64, key: Option<Key>) -> Outcome {
        let Some((id, capture)) = key.and_then(|key| self.of(key)) else {
            self.events.remove(&event);
            self.recorded.insert(event);
            return Ok(());
        };
        if capture.is_invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let tips = key.and_then(|key| capture.tips.get(&key)).cloned().unwrap_or_default();
        self.events.insert(event, (id, tips));
        Ok(())
    }

    /// An event is gone.
    pub(crate) fn forget_event(&mut self, event: u64) {
        self.events.remove(&event);
        self.recorded.remove(&event);
    }

    /// Refuses a question about an event of a capture. The question invalidates a capture that
    /// still runs if `invalidates` says so.
    pub(crate) fn check_event(&mut self, event: u64, invalidates: bool) -> Outcome {
        let Some((id, _)) = self.events.get(&event) else { return Ok(()) };
        let Some(capture) = self.running.get_mut(id) else { return Err(Code::INVALID_VALUE) };
        capture.is_invalid |= invalidates;
        Err(CAPTURED_EVENT)
    }

    /// A stream waits for an event. The answer is whether that is a matter of captures only, so
    /// that the stream itself waits for nothing.
    ///
    /// # Errors
    /// The codes of captures; all but `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED` invalidate those that
    /// are concerned.
    pub(crate) fn wait(&mut self, key: Key, is_legacy: bool, event: u64) -> Outcome<bool> {
        let of_event = self.events.get(&event).cloned();
        let of_stream = self.of(key).map(|(id, capture)| (id, capture.is_invalid));
        match (of_stream, of_event) {
            (None, None) => Ok(false),
            (Some((_, true)), _) => Err(STREAM_CAPTURE_INVALIDATED),
            (stream, Some((id, _))) if !self.running.contains_key(&id) => {
                let own: Vec<u64> = stream.into_iter().map(|(id, _)| id).collect();
                self.spoil(&own, Code::INVALID_VALUE)
            }
            (Some((id, _)), None) => {
                if !self.recorded.contains(&event) {
                    return Ok(true);
                }
                self.spoil(&[id], STREAM_CAPTURE_ISOLATION)
            }
            (None, Some((id, _))) if is_legacy => self.spoil(&[id], STREAM_CAPTURE_IMPLICIT),
            (Some((id, _)), Some((other, _))) if id != other => {
                self.spoil(&[id, other], STREAM_CAPTURE_MERGE)
            }
            (_, Some((id, nodes))) => {
                let Some(capture) = self.running.get_mut(&id) else { return Ok(true) };
                if capture.is_invalid {
                    return Err(STREAM_CAPTURE_INVALIDATED);
                }
                capture.tips.entry(key).or_default().extend(nodes);
                Ok(true)
            }
        }
    }

    /// Invalidates captures, and fails with a code.
    fn spoil(&mut self, ids: &[u64], code: c_int) -> Outcome<bool> {
        for id in ids {
            if let Some(capture) = self.running.get_mut(id) {
                capture.is_invalid = true;
            }
        }
        Err(code)
    }

    /// Whether a capture makes nodes of a graph.
    pub(crate) fn is_into(&self, graph: usize) -> bool {
        self.running.values().any(|capture| capture.graph == graph)
    }

    /// Ends the capture of a stream.
    ///
    /// # Errors
    /// `CUDA_ERROR_ILLEGAL_STATE` if the stream does not capture;
    /// `CUDA_ERROR_STREAM_CAPTURE_UNMATCHED` if the capture began in another, which invalidates it.
    pub(crate) fn end(&mut self, key: Key) -> Outcome<Ended> {
        let (id, capture) = self.of(key).ok_or(ILLEGAL_STATE)?;
        if capture.origin != key {
            self.spoil(&[id], STREAM_CAPTURE_UNMATCHED)?;
        }
        let capture = self.running.remove(&id).ok_or(ILLEGAL_STATE)?;
        let is_elsewhere = capture.mode != RELAXED && capture.thread != this_thread();
        let outcome = match () {
            () if capture.is_invalid => Err(STREAM_CAPTURE_INVALIDATED),
            () if is_elsewhere => Err(STREAM_CAPTURE_WRONG_THREAD),
            () => Ok(()),
        };
        Ok(Ended { capture, outcome })
    }

    /// A stream is gone. Its capture goes with it if it began there; the answer is the capture.
    pub(crate) fn forget_stream(&mut self, key: Key) -> Option<Capture> {
        let (id, capture) = self.of(key)?;
        if capture.origin == key {
            return self.running.remove(&id);
        }
        self.of_mut(key)?.tips.remove(&key);
        None
    }

    /// A context is gone. The captures that began in a stream of it go as well, and are given.
    pub(crate) fn forget_context(&mut self, context: usize) -> Vec<Capture> {
        let began =
            |(&id, capture): (&u64, &Capture)| (capture.origin.context == context).then_some(id);
        let ids: Vec<u64> = self.running.iter().filter_map(began).collect();
        ids.iter().filter_map(|id| self.running.remove(id)).collect()
    }

    /// A node is gone.
    pub(crate) fn forget_node(&mut self, node: usize) {
        for tips in self.running.values_mut().flat_map(|capture| capture.tips.values_mut()) {
            tips.remove(&node);
        }
        for (_, nodes) in self.events.values_mut() {
            nodes.remove(&node);
        }
    }

    /// A graph is gone: captures into it are invalid.
    pub(crate) fn forget_graph(&mut self, graph: usize) {
        for capture in self.running.values_mut() {
            capture.is_invalid |= capture.graph == graph;
        }
    }
}

impl Capture {
    /// The nodes that the next node of a stream depends on, as an array, and as many zeros.
    pub(crate) fn list(&mut self, key: Key) -> (&[usize], &[u64]) {
        let tips: Vec<usize> = self.tips.get(&key).into_iter().flatten().copied().collect();
        self.listed = (tips.clone(), vec![0; tips.len()]);
        (&self.listed.0, &self.listed.1)
    }

    /// The last nodes of the stream in which the capture began.
    pub(crate) fn ends(&self) -> BTreeSet<usize> {
        self.tips.get(&self.origin).cloned().unwrap_or_default()
    }

    /// The last nodes of all streams.
    pub(crate) fn all_ends(&self) -> impl Iterator<Item = usize> {
        self.tips.values().flatten().copied()
    }
}
