//! Claims that hold on every back end, as functions over `&dyn Backend`.
//!
//! The name of a function is the claim. Each takes a fresh back end with one device at least, and
//! leaves nothing allocated. [`CLAIMS`] lists them, so that a runner can name each. What a back end
//! may lack is read from its [`Capabilities`]: then the claim checks that the call says so.
//! Sources: recordings of driver 580 (CUDA 13.0) on an H200.

pub mod advice;
pub mod batches;
mod claims;
pub mod copies;
#[cfg(target_os = "linux")]
pub mod driver;
pub mod gpu;
pub mod handles;
pub mod memory;
pub mod movement;
pub mod pools;
pub mod sharing;
pub mod virtual_memory;

use pagewise::{
    AttachFlags, Backend, Capabilities, DeviceId, DevicePtr, Error, ErrorKind, Location, Result,
    Span, StreamHandle,
};

pub use claims::{CLAIMS, CLAIMS_WITHOUT_CONCURRENT_ACCESS, Claim};

const PAGE: u64 = pagewise::PAGE_BYTES;
const MIB: u64 = 1 << 20;
const GPU: Location = Location::device(DeviceId(0));
const NO_GPU: Location = Location::device(DeviceId(99));
const STREAM: StreamHandle = StreamHandle::PER_THREAD;

/// An address that belongs to nothing.
const WILD: DevicePtr = DevicePtr(0x1234_5678_9000);

/// A managed allocation, freed when it goes out of scope.
struct Managed<'a> {
    backend: &'a dyn Backend,
    span: Span,
}

impl<'a> Managed<'a> {
    fn new(backend: &'a dyn Backend, bytes: u64) -> Self {
        let ptr = backend.alloc_managed(bytes, AttachFlags::GLOBAL).expect("managed memory");
        Self { backend, span: Span::new(ptr, bytes) }
    }

    /// `bytes` bytes from `offset` on, whether they are inside or not.
    fn at(&self, offset: u64, bytes: u64) -> Span {
        Span::new(self.span.ptr.offset(offset), bytes)
    }
}

impl Drop for Managed<'_> {
    fn drop(&mut self) {
        // SAFETY: claims wait for all work that uses the memory, and drop this value last.
        let freed = unsafe { self.backend.free(self.span.ptr) };
        if !std::thread::panicking() {
            freed.expect("a claim does not free what this frees");
        }
    }
}

/// The result number of a call: 0 for success.
fn code<T>(answer: Result<T>) -> i32 {
    answer.map_or_else(|error| error.code().unwrap_or(-1), |_| 0)
}

/// The call was refused because the entry point is missing.
fn is_absent<T>(answer: Result<T>) -> bool {
    answer.map_or_else(|error: Error| error.kind() == ErrorKind::Unsupported, |_| false)
}

fn has_locations(backend: &dyn Backend) -> bool {
    let Capabilities { locations, .. } = backend.capabilities();
    locations
}
