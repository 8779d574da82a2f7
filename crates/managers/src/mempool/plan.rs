//! Plans: the requests to the driver that a list of tensors comes to.
//!
//! Everything is found out before the first call that changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use pagewise::refuse::{also, invalid};
use pagewise::{
    DevicePtr, Error, ErrorKind, Machine, MemoryAdvice, Place, PointerAttribute, Region, Result,
    Rounding, Span, Stream, use_on,
};

use super::footprint::of_allocations;
use super::tensor::{Tensor, TensorMemory, TensorStorage};

/// The treatment of tensors in memory that is not managed.
///
/// ```
/// use pagewise_managers::mempool::Unmanaged;
/// assert_eq!(Unmanaged::default(), Unmanaged::Refuse);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unmanaged {
    /// One is enough to refuse the operation, before anything is done; the error names it.
    #[default]
    Refuse,
    /// They are left out.
    Skip,
    /// They are left out, and the [`Report`] names them.
    Report,
}

/// How operations over the tensors of a module are carried out.
///
/// ```
/// use pagewise_managers::mempool::{ModuleOptions, Unmanaged};
///
/// let options = ModuleOptions { include_buffers: true, ..ModuleOptions::default() };
/// assert_eq!((options.unmanaged, options.rounding), (Unmanaged::Refuse, None));
/// assert!(options.coalesce);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModuleOptions {
    /// Buffers too, not parameters alone.
    pub include_buffers: bool,
    /// The treatment of tensors in memory that is not managed.
    pub unmanaged: Unmanaged,
    /// Which pages take part that tensors cover in part, and so share with neighbours; `None` as
    /// the driver does it: outward for advice and prefetch, inward for discards.
    pub rounding: Option<Rounding>,
    /// Whether neighbours become one range, as [`RangeFootprint`](super::RangeFootprint) says.
    pub coalesce: bool,
}

impl Default for ModuleOptions {
    /// Parameters alone, unmanaged ones refused, rounded as the driver does it, coalesced.
    fn default() -> Self {
        let unmanaged = Unmanaged::default();
        Self { include_buffers: false, unmanaged, rounding: None, coalesce: true }
    }
}

/// The subject of an operation.
///
/// ```
/// assert_eq!(pagewise_managers::mempool::Report::default().page_bytes, 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Tensors that took part.
    pub tensors: usize,
    /// Their elements times the sizes of those: shared storage counted each time, gaps not at all.
    pub requested_bytes: u64,
    /// Bytes from first elements to the ends of last ones, each byte once.
    pub unique_bytes: u64,
    /// Bytes of the pages that took part.
    pub page_bytes: u64,
    /// How many ranges the driver was asked for.
    pub ranges: usize,
    /// Names of those left out because their memory is not managed, with [`Unmanaged::Report`].
    pub unmanaged: Vec<String>,
}

/// The roundings of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    AdviceOrPrefetch,
    Discard,
}

impl Purpose {
    fn rounding(self, policy: Option<Rounding>) -> Rounding {
        match (self, policy) {
            (Self::AdviceOrPrefetch, None) => Rounding::Outward,
            (Self::Discard, None) => Rounding::Inward,
            // Rounded outward a discard would take contents of neighbours.
            (Self::Discard, Some(Rounding::Outward)) => Rounding::Exact,
            (_, Some(rounding)) => rounding,
        }
    }
}

/// A tensor, or a whole storage, as part of an operation.
pub(super) struct Item {
    pub(super) name: String,
    pub(super) requested_bytes: u64,
    pub(super) span: Span,
    pub(super) memory: TensorMemory,
}

impl Item {
    pub(super) fn tensor(name: String, tensor: &Tensor) -> Self {
        let requested_bytes = tensor.layout().requested_bytes();
        Self { name, requested_bytes, span: tensor.span(), memory: tensor.memory.clone() }
    }

    pub(super) fn storage(storage: &Arc<TensorStorage>) -> Self {
        let span = storage.buffer.span();
        let memory = TensorMemory::Pool(Arc::clone(storage));
        Self { name: storage.name.to_string(), requested_bytes: span.bytes, span, memory }
    }

    fn machine(&self) -> &Machine {
        match &self.memory {
            TensorMemory::Pool(storage) => storage.buffer.machine(),
            TensorMemory::Foreign(machine) => machine,
        }
    }

    /// The allocation that the bytes lie in; `None` if they are not managed.
    fn home(&self, operation: &'static str) -> Result<Option<Span>> {
        let machine = match &self.memory {
            TensorMemory::Pool(storage) => return Ok(Some(storage.home)),
            TensorMemory::Foreign(machine) => machine,
        };
        let ask = |attribute| machine.backend().pointer_attribute(self.span.ptr, attribute);
        match ask(PointerAttribute::IS_MANAGED) {
            Ok(0) => return Ok(None),
            // It belongs to no allocation at all.
            Err(error) if error.kind() == ErrorKind::InvalidValue => return Ok(None),
            answer => answer?,
        };
        let start = DevicePtr(ask(PointerAttribute::RANGE_START_ADDR)?);
        let home = Span::new(start, ask(PointerAttribute::RANGE_SIZE)?);
        if self.span.end() > home.end() {
            let why = format!("`{}` passes the end of its allocation {home}", self.name);
            return Err(invalid(operation, why).with_span(self.span));
        }
        Ok(Some(home))
    }
}

/// The requests to the driver, and their tensors.
pub(super) struct Plan {
    operation: &'static str,
    pub(super) report: Report,
    items: Vec<Item>,
    ranges: Vec<Span>,
}

impl Plan {
    /// Finds out all that can go wrong without the driver's being asked to change anything.
    pub(super) fn of(
        operation: &'static str,
        mut items: Vec<Item>,
        purpose: Purpose,
        options: &ModuleOptions,
    ) -> Result<Self> {
        items.retain(|item| item.span.bytes > 0);
        check_machines(operation, &items)?;
        let mut report = Report::default();
        let mut spans: BTreeMap<u64, Vec<Span>> = BTreeMap::new();
        let mut taking_part = Vec::with_capacity(items.len());
        for item in items {
            let Some(home) = item.home(operation)? else {
                match options.unmanaged {
                    Unmanaged::Refuse => return Err(unmanaged(operation, &item)),
                    Unmanaged::Skip => {}
                    Unmanaged::Report => report.unmanaged.push(item.name),
                }
                continue;
            };
            spans.entry(home.ptr.0).or_default().push(item.span);
            report.tensors += 1;
            report.requested_bytes = report.requested_bytes.saturating_add(item.requested_bytes);
            taking_part.push(item);
        }
        let rounding = purpose.rounding(options.rounding);
        let footprint = of_allocations(&spans, rounding, options.coalesce);
        let footprint = footprint.map_err(|error| named(operation, error, &taking_part))?;
        report.unique_bytes = footprint.unique_bytes;
        report.page_bytes = footprint.page_bytes;
        report.ranges = footprint.ranges.len();
        Ok(Self { operation, report, items: taking_part, ranges: footprint.ranges })
    }

    pub(super) fn ranges(&self) -> &[Span] {
        &self.ranges
    }

    /// The machine of all tensors; `None` if the driver is asked for nothing.
    fn machine(&self) -> Option<&Machine> {
        if self.ranges.is_empty() { None } else { self.items.first().map(Item::machine) }
    }

    /// Makes the stream come after those that the memory came on: one wait for each of them,
    /// however many tensors came on it.
    fn use_on(&self, stream: &Stream) -> Result<()> {
        let buffers = self.items.iter().filter_map(|item| match &item.memory {
            TensorMemory::Pool(storage) => Some(storage.buffer.region()),
            TensorMemory::Foreign(_) => None,
        });
        let regions: Vec<Region<'_>> = buffers.collect();
        use_on(regions, stream)
    }

    /// One call where the driver has one and takes the stream; else a loop. Its error says what
    /// became of the other ranges.
    pub(super) fn prefetch(&self, to: Place, stream: &Stream) -> Result<()> {
        let Some(machine) = self.machine() else { return Ok(()) };
        machine.check_place(self.operation, to)?;
        machine.check_stream(self.operation, stream)?;
        self.use_on(stream)?;
        let sent = machine.prefetch_spans(&self.ranges, to, stream.handle());
        sent.map_err(|error| self.blame(error))
    }

    pub(super) fn advise(&self, advice: MemoryAdvice) -> Result<()> {
        let Some(machine) = self.machine() else { return Ok(()) };
        let checked = advice.check("advise", machine);
        let advised = checked.and_then(|()| machine.advise_spans(&self.ranges, advice));
        advised.map_err(|error| self.blame(error))
    }

    /// Discards the whole pages of the ranges; if there is a place to go to, migrates the ranges
    /// there without copying what was discarded.
    ///
    /// # Safety
    /// As [`Backend::discard_batch`](pagewise::Backend::discard_batch).
    pub(super) unsafe fn discard(&self, then_to: Option<Place>, stream: &Stream) -> Result<()> {
        let Some(machine) = self.machine() else { return Ok(()) };
        // SAFETY: the discard asks that no code reads the ranges until they are written again; the
        // caller of this method promised that.
        let discarded = unsafe { self.discard_on(machine, then_to, stream) };
        discarded.map_err(|error| self.blame(error))
    }

    /// # Safety
    /// As [`discard`](Self::discard).
    unsafe fn discard_on(
        &self,
        machine: &Machine,
        then_to: Option<Place>,
        stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "discard";
        let Some(place) = then_to else {
            machine.check_discard(OPERATION, stream)?;
            let whole = self.ranges.iter().map(|&range| Rounding::Inward.apply(OPERATION, range));
            let mut whole: Vec<Span> = whole.collect::<Result<_>>()?;
            whole.retain(|span| span.bytes > 0);
            self.use_on(stream)?;
            if whole.is_empty() {
                return Ok(());
            }
            // SAFETY: the caller promised that no code reads the contents until they are written
            // again. Only whole pages within the ranges are discarded.
            return unsafe { machine.discard_spans(&whole, stream.handle()) };
        };
        machine.check_discard("discard_prefetch", stream)?;
        let to = [machine.check_place("discard_prefetch", place)?];
        self.use_on(stream)?;
        let backend = machine.backend();
        // SAFETY: the caller promised that no code reads the contents until they are written again.
        // The driver discards only whole pages within the ranges.
        unsafe { backend.discard_prefetch_batch(&self.ranges, &to, &[0], 0, stream.handle()) }
    }

    /// The error, with the names of the tensors that the failing range is about.
    #[cold]
    fn blame(&self, error: Error) -> Error {
        let range = error.item().and_then(|item| self.ranges.get(item)).copied();
        let range = range.or_else(|| match self.ranges[..] {
            [only] => Some(only),
            _ => None,
        });
        match range {
            Some(range) => also(error, &format!("in {}", names_in(range, &self.items))),
            None => also(error, &format!("{} tensors in all", self.items.len())),
        }
    }
}

fn check_machines(operation: &'static str, items: &[Item]) -> Result<()> {
    let Some(first) = items.first() else { return Ok(()) };
    match items.iter().find(|item| item.machine() != first.machine()) {
        None => Ok(()),
        Some(other) => {
            let why = format!("`{}` is of another machine than `{}`", other.name, first.name);
            Err(invalid(operation, why).with_span(other.span))
        }
    }
}

#[cold]
fn unmanaged(operation: &'static str, item: &Item) -> Error {
    let why = format!(
        "`{}` is not managed memory: allocate it from a unified pool, or choose to skip such \
         tensors",
        item.name
    );
    invalid(operation, why).with_span(item.span)
}

/// A refusal of the footprint, in the operation's name and with those of the tensors.
#[cold]
fn named(operation: &'static str, error: Error, items: &[Item]) -> Error {
    let Some(span) = error.span() else { return error };
    let why = format!("{}: {}", names_in(span, items), error.detail());
    Error::new(operation, error.kind()).with_detail(why).with_span(span)
}

/// The tensors with bytes in a range: the first few by name.
fn names_in(range: Span, items: &[Item]) -> String {
    const SHOWN: usize = 3;
    let ends = |span: Span| span.end().unwrap_or(u64::MAX);
    let inside = |item: &&Item| item.span.ptr.0 < ends(range) && range.ptr.0 < ends(item.span);
    let names: Vec<String> =
        items.iter().filter(inside).map(|item| format!("`{}`", item.name)).collect();
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}
