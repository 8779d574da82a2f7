//! Hostile calls by signature alone, of every symbol that the library exports.
//!
//! The table `symbols.tsv` says which parameters an entry point has. Each parameter gets a hostile
//! value of its type: a handle that is live, destroyed, wild or of another kind, any address, any
//! number, null or a place of this program. An entry point needs no line of code here.
//!
//! What C forbids is left out. A place has [`ROOM_BYTES`], and numbers stay below [`FEW`] in a call
//! that gets any place, because a number may be the length of an array there. A place that may hold
//! a structure holds zeros, because a number in it may be a pointer.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::LazyLock;

use pagewise_driver::cuMemGetAddressRange_v2;

use super::made::{ADDRESSES, is_handle};
use super::rooms::{FEW, Rooms};
use super::world::{World, limited};

/// The types of functions of the caller.
const FUNCTIONS: [&str; 7] = [
    "CUasyncCallback",
    "CUcoredumpStatusCallback",
    "CUgraphRecaptureCallback",
    "CUhostFn",
    "CUlogsCallback",
    "CUoccupancyB2DSize",
    "CUstreamCallback",
];

/// The types of plain numbers, of which each may be a length.
const NUMBERS: [&str; 9] = [
    "size_t",
    "int",
    "unsigned",
    "unsigned int",
    "unsigned char",
    "unsigned short",
    "unsigned long long",
    "cuuint32_t",
    "cuuint64_t",
];

/// A name that no file and no kernel has.
const NO_FILE: &CStr = c"/nowhere/file";

/// The kind of a parameter, by its type in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parameter {
    Handle(&'static str),
    Address,
    Ordinal,
    Number,
    Enumeration,
    Text,
    Function,
    /// A pointer to a type, and whether the call only reads there.
    Place(&'static str, bool),
}

impl Parameter {
    fn parse(c: &'static str) -> Self {
        if c == "const char *" {
            return Self::Text;
        }
        if let Some(pointee) = c.strip_suffix('*') {
            let pointee = pointee.trim_end();
            let constant = pointee.strip_prefix("const ");
            return Self::Place(constant.unwrap_or(pointee), constant.is_some());
        }
        match c {
            "CUdeviceptr" => Self::Address,
            "CUdevice" => Self::Ordinal,
            _ if is_handle(c) => Self::Handle(c),
            _ if FUNCTIONS.contains(&c) => Self::Function,
            _ if NUMBERS.contains(&c) => Self::Number,
            _ => Self::Enumeration,
        }
    }

    const fn is_place(self) -> bool {
        matches!(self, Self::Place(..))
    }
}

/// An entry point, as its signature describes it.
#[derive(Debug)]
pub(super) struct EntryPoint {
    pub(super) symbol: &'static str,
    parameters: Vec<Parameter>,
    address: usize,
    /// Whether the library implements it, in this form or with the legacy default stream.
    pub(super) answers: bool,
}

/// No entry point has more parameters.
const PARAMETERS_MAX: usize = 16;

/// Every symbol of the table.
pub(super) static TABLE: LazyLock<Vec<EntryPoint>> = LazyLock::new(|| {
    let text = include_str!("../../../crates/sim-driver/data/symbols.tsv");
    let implemented: BTreeSet<&str> =
        pagewise_driver::entry_points().map(|(_, _, symbol)| symbol).collect();
    let parse = |line: &'static str| {
        let mut fields = line.split('\t');
        let symbol = fields.next().expect("a row begins with a symbol");
        let parameters = fields.nth(3).expect("a row has five fields");
        let each = parameters.split(", ").filter(|c| !c.is_empty());
        let parameters: Vec<_> = each.map(Parameter::parse).collect();
        assert!(parameters.len() <= PARAMETERS_MAX, "{symbol} has too many parameters");
        let legacy = symbol.strip_suffix("_ptsz").or(symbol.strip_suffix("_ptds"));
        EntryPoint {
            symbol,
            parameters,
            address: ADDRESSES[symbol],
            answers: implemented.contains(legacy.unwrap_or(symbol)),
        }
    };
    text.lines().skip(1).map(parse).collect()
});

impl EntryPoint {
    /// Makes one hostile call and returns its `CUresult`.
    pub(super) fn attack(&self, world: &mut World<'_, '_>) -> c_int {
        let mut rooms = Rooms::take(&mut world.rooms);
        let absent = world.choices.chance(1, 8);
        let mut arguments = [0; PARAMETERS_MAX];
        let mut has_place = false;
        for (at, &parameter) in self.parameters.iter().enumerate() {
            if let Parameter::Place(pointee, is_const) = parameter
                && !absent
                && world.choices.chance(7, 8)
            {
                fill(world, rooms.room(at), pointee, is_const);
                arguments[at] = rooms.address(at);
                has_place = true;
            }
        }
        let spare = rooms.address(PARAMETERS_MAX);
        let others = self.parameters.iter().enumerate().filter(|(_, one)| !one.is_place());
        for (at, &parameter) in others {
            arguments[at] = argument(world, parameter, has_place, spare);
        }
        let code = self.call(arguments);
        if code == 0 {
            self.note(world, &rooms, &arguments);
        }
        rooms.give_back(&mut world.rooms);
        code
    }

    /// Makes the call. A C function finds its arguments where the caller put them, and further ones
    /// do not disturb it: on the systems that CUDA supports the caller removes them.
    fn call(&self, arguments: [u64; PARAMETERS_MAX]) -> c_int {
        type Any = unsafe extern "C" fn(
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
            u64,
        ) -> c_int;
        let address: *const c_void = std::ptr::with_exposed_provenance(self.address);
        // SAFETY: the address is that of an exported C function, which returns a `CUresult`.
        let function: Any = unsafe { std::mem::transmute(address) };
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = arguments;
        // SAFETY: each pointer among the arguments is null, a text or a function of this file, or a
        // room that is longer than what the numbers of the call allow. Handles, ordinals and device
        // addresses may be any numbers.
        unsafe { function(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) }
    }

    /// Notes what a call that succeeded made or ended.
    fn note(&self, world: &mut World<'_, '_>, rooms: &Rooms, arguments: &[u64]) {
        for (at, &parameter) in self.parameters.iter().enumerate() {
            let Parameter::Place(pointee, false) = parameter else { continue };
            let made = rooms.first(at);
            if arguments[at] == 0 || made == 0 {
                continue;
            }
            if pointee == "CUdeviceptr" && self.symbol.contains("Alloc") {
                world.appeared(made, length_of(made), false);
            } else if is_handle(pointee) && makes(self.symbol) {
                keep(world, pointee, made);
            }
        }
        let ends = ["Destroy", "Unload", "Release", "Unregister"];
        if let Some(Parameter::Handle(kind)) = self.parameters.first()
            && ends.iter().any(|word| self.symbol.contains(word))
        {
            forget(world, kind, arguments[0]);
        }
    }
}

/// Whether handles that an entry point gives out are the caller's to end: all others it looks up.
fn makes(symbol: &str) -> bool {
    let made =
        ["Create", "Load", "Clone", "Instantiate", "Add", "Import", "GetFunction", "GetKernel"];
    made.iter().any(|word| symbol.contains(word))
}

/// A hostile value of a parameter that is no place.
fn argument(world: &mut World<'_, '_>, kind: Parameter, has_place: bool, spare: u64) -> u64 {
    match kind {
        Parameter::Handle(kind) => handle(world, kind),
        Parameter::Address => world.address(),
        Parameter::Ordinal => u64::from(world.ordinal().cast_unsigned()),
        Parameter::Number if has_place => world.choices.below(FEW),
        Parameter::Number => limited(world.choices.edge()),
        // By value in memory, which is a pointer on aarch64: a room serves as well as any number.
        Parameter::Enumeration if cfg!(target_arch = "aarch64") && world.choices.chance(1, 2) => {
            spare
        }
        Parameter::Enumeration => world.small(12),
        Parameter::Text => match world.choices.below(8) {
            0 => 0,
            1 => c"".as_ptr().expose_provenance() as u64,
            _ => NO_FILE.as_ptr().expose_provenance() as u64,
        },
        Parameter::Function if world.choices.chance(1, 8) => 0,
        Parameter::Function => (nothing as *const ()).expose_provenance() as u64,
        Parameter::Place(..) => 0,
    }
}

/// A function of the host that does nothing, whatever it gets.
extern "C" fn nothing() -> usize {
    0
}

/// Fills a room with what a place of a type may hold.
fn fill(world: &mut World<'_, '_>, room: &mut [u64], pointee: &'static str, is_const: bool) {
    let words = &mut room[..FEW as usize];
    match pointee {
        "CUdeviceptr" => words.fill_with(|| world.address()),
        "size_t" if world.choices.chance(1, 2) => words.fill_with(|| world.choices.below(FEW)),
        _ if is_const && is_handle(pointee) => words.fill_with(|| handle(world, pointee)),
        _ => {}
    }
}

/// A handle: of this kind, of another, destroyed, or wild.
fn handle(world: &mut World<'_, '_>, kind: &'static str) -> u64 {
    if world.choices.chance(1, 6) {
        return world.stranger();
    }
    match kind {
        "CUstream" => world.stream().addr() as u64,
        "CUevent" => world.event().addr() as u64,
        "CUcontext" => world.context().addr() as u64,
        "CUmemoryPool" => world.pool().addr() as u64,
        _ => {
            let known = world.made.of(kind).to_vec();
            match world.choices.below(6) {
                0 => world.choices.edge(),
                1 => world.stale_number(),
                2 => 0,
                _ if known.is_empty() => world.stranger(),
                _ => world.choices.one_of(&known),
            }
        }
    }
}

/// Keeps a handle that was made.
fn keep(world: &mut World<'_, '_>, kind: &'static str, made: u64) {
    match kind {
        "CUstream" => world.streams.push(made as usize),
        "CUevent" => world.events.push(made as usize),
        "CUcontext" => world.contexts.push(made as usize),
        "CUmemoryPool" => world.pools.push(made as usize),
        _ => world.made.keep(kind, made),
    }
}

/// A handle is gone.
fn forget(world: &mut World<'_, '_>, kind: &str, gone: u64) {
    match kind {
        "CUstream" => world.streams.retain(|known| *known as u64 != gone),
        "CUevent" => world.events.retain(|known| *known as u64 != gone),
        "CUcontext" => world.contexts.retain(|known| *known as u64 != gone),
        "CUmemoryPool" => world.pools.retain(|known| *known as u64 != gone),
        _ => world.made.forget(kind, gone),
    }
    world.stale.push(gone);
}

/// The length of the allocation that begins here, or 1.
fn length_of(ptr: u64) -> usize {
    let mut bytes = 0_usize;
    // SAFETY: one place is null, and the other a local that outlives the call.
    let code = unsafe { cuMemGetAddressRange_v2(null_mut(), &raw mut bytes, ptr) };
    if code == 0 { bytes.max(1) } else { 1 }
}
