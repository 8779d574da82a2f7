//! Handles of types that no other list of a program has, and their end.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::LazyLock;

use pagewise_driver::addresses;

/// The types of handles, and the entry point that ends the use of one.
const HANDLES: [(&str, &str); 27] = [
    ("CUarray", "cuArrayDestroy"),
    ("CUasyncCallbackHandle", ""),
    ("CUcontext", ""),
    ("CUcoredumpCallbackHandle", ""),
    ("CUdevResourceDesc", ""),
    ("CUeglStreamConnection", ""),
    ("CUevent", ""),
    ("CUexternalMemory", "cuDestroyExternalMemory"),
    ("CUexternalSemaphore", "cuDestroyExternalSemaphore"),
    ("CUfunction", ""),
    ("CUgraph", "cuGraphDestroy"),
    ("CUgraphExec", "cuGraphExecDestroy"),
    ("CUgraphNode", ""),
    ("CUgraphicsResource", "cuGraphicsUnregisterResource"),
    ("CUgreenCtx", "cuGreenCtxDestroy"),
    ("CUkernel", ""),
    ("CUlibrary", "cuLibraryUnload"),
    ("CUlinkState", "cuLinkDestroy"),
    ("CUlogicalEndpointId", ""),
    ("CUlogsCallbackHandle", "cuLogsUnregisterCallback"),
    ("CUmemGenericAllocationHandle", "cuMemRelease"),
    ("CUmemoryPool", ""),
    ("CUmipmappedArray", "cuMipmappedArrayDestroy"),
    ("CUmodule", "cuModuleUnload"),
    ("CUstream", ""),
    ("CUtexref", "cuTexRefDestroy"),
    ("CUuserObject", "cuUserObjectRelease"),
];

/// How many handles of a type live at a time.
const HANDLES_MAX: usize = 6;

/// Where each symbol is.
pub(super) static ADDRESSES: LazyLock<BTreeMap<&str, usize>> = LazyLock::new(|| {
    addresses().map(|(symbol, address)| (symbol, address.expose_provenance())).collect()
});

/// Whether a type of C is a handle.
pub(super) fn is_handle(c: &str) -> bool {
    HANDLES.iter().any(|(handle, _)| *handle == c)
}

/// The handles of a program, by their types in C.
#[derive(Debug, Default)]
pub(super) struct Made(BTreeMap<&'static str, Vec<u64>>);

impl Made {
    /// The handles of a type.
    pub(super) fn of(&self, kind: &str) -> &[u64] {
        self.0.get(kind).map_or(&[], Vec::as_slice)
    }

    /// The handles of all types.
    pub(super) fn all(&self) -> impl Iterator<Item = u64> {
        self.0.values().flatten().copied()
    }

    /// A handle was made.
    pub(super) fn keep(&mut self, kind: &'static str, handle: u64) {
        self.0.entry(kind).or_default().push(handle);
    }

    /// A handle is gone.
    pub(super) fn forget(&mut self, kind: &str, gone: u64) {
        if let Some(known) = self.0.get_mut(kind) {
            known.retain(|known| *known != gone);
        }
    }

    /// Ends the oldest handles of each type that has many, and returns them.
    pub(super) fn make_room(&mut self) -> Vec<u64> {
        self.end_above(HANDLES_MAX)
    }

    /// Ends all handles.
    pub(super) fn end(&mut self) {
        self.end_above(0);
    }

    fn end_above(&mut self, most: usize) -> Vec<u64> {
        let mut ended = Vec::new();
        for (kind, destroyer) in HANDLES {
            let known = self.0.entry(kind).or_default();
            let surplus = known.len().saturating_sub(most);
            for handle in known.drain(..surplus) {
                ended.push(handle);
                destroy(destroyer, handle);
            }
        }
        ended
    }
}

/// Ends the use of a handle by the entry point of this name, if there is one.
fn destroy(symbol: &str, handle: u64) {
    let Some(&address) = ADDRESSES.get(symbol) else { return };
    let address: *const c_void = std::ptr::with_exposed_provenance(address);
    // SAFETY: the address is that of an exported C function, which takes a handle, some of them also
    // a number of references, and returns a `CUresult`.
    let function: unsafe extern "C" fn(u64, u64) -> c_int = unsafe { std::mem::transmute(address) };
    // SAFETY: the driver looks handles up, and this program uses the handle no more. A function
    // that has no second parameter does not read the register in which it is passed.
    unsafe { function(handle, 1) };
}
