//! The work of one of the two processes.

use std::ffi::{c_int, c_void};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::{null_mut, without_provenance_mut};

use pagewise_driver::*;

use crate::socket::{DESCRIPTORS, receive, send};

/// The granularity of physical memory: the least that can be mapped.
const BYTES: usize = 2 << 20;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const FD: c_int = 1;
/// `CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS`
const EVENT_FLAGS: u32 = 6;
const DEVICE: MemLocation = MemLocation { kind: 1, id: 0 };
/// A process adds this to its value when it writes into the memory of the other one.
const REPLY: u8 = 100;

/// The bytes of the other process that a process saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The bytes that the other process wrote before it exported its memory.
    pub(crate) contents: bool,
    /// The bytes that the other process wrote into this one's memory.
    reply: bool,
}

impl Seen {
    pub(crate) fn all(&self) -> bool {
        self.contents && self.reply
    }
}

/// Memory of one kind in a process: of a pool, of `cuMemAlloc`, and mapped.
type Three = [u64; 3];

/// A process's own memory, and what it exported of it.
struct Own {
    pool: *mut c_void,
    physical: u64,
    event: *mut c_void,
    memory: Three,
    handles: [OwnedFd; DESCRIPTORS],
    blobs: [Blob; 3],
}

/// Memory of the other process.
struct Theirs {
    /// The context that the memory of `cuMemAlloc` was opened in, if that is not the primary one.
    context: Option<*mut c_void>,
    pool: *mut c_void,
    physical: u64,
    event: *mut c_void,
    memory: Three,
}

pub(crate) struct Session {
    socket: UnixStream,
    value: u8,
    calls: u64,
    dies_before: u64,
}

fn are_all(bytes: &[u8], value: u8) -> bool {
    bytes.iter().all(|&byte| byte == value)
}

impl Session {
    /// Work that fills its memory with `value`, and kills the process before the call of this
    /// number, if it is not 0.
    pub(crate) fn new(socket: UnixStream, value: u8, dies_before: u64) -> Self {
        Self { socket, value, calls: 0, dies_before }
    }

    /// Tells the other process how many calls the work was.
    pub(crate) fn tell_calls(&mut self) {
        self.socket.write_all(&self.calls.to_le_bytes()).expect("the parent waits");
    }

    pub(crate) fn heard_calls(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.socket.read_exact(&mut bytes).expect("the child has ended well");
        u64::from_le_bytes(bytes)
    }

    /// Makes one call, which has to succeed.
    fn call(&mut self, call: impl FnOnce() -> c_int) {
        self.calls += 1;
        if self.calls == self.dies_before {
            // SAFETY: the call ends this process.
            unsafe { libc::kill(std::process::id().cast_signed(), libc::SIGKILL) };
        }
        let code = call();
        assert_eq!(code, 0, "call {} of the process with {}", self.calls, self.value);
    }

    /// Does all of the work. The part that needs the other process ends with that one.
    pub(crate) fn run(&mut self) -> Seen {
        let mut seen = Seen::default();
        self.start();
        let own = self.export();
        let theirs = self.exchange(&own).and_then(|(blobs, handles)| {
            // Both have imported before one ends: handles name processes that live.
            let theirs = self.import(&blobs, &handles)?;
            Some((theirs, self.meet()))
        });
        if let Some((theirs, met)) = theirs {
            let other = 3 - self.value;
            let contents = self.read_all(&theirs.memory);
            assert!(contents.iter().all(|read| are_all(&read[..BYTES / 2], other)));
            seen.contents = true;
            self.write_halves(&theirs.memory);
            if met.and_then(|()| self.meet()).is_some() {
                let replies = self.read_all(&own.memory);
                assert!(replies.iter().all(|read| are_all(&read[BYTES / 2..], other + REPLY)));
                seen.reply = true;
            }
            self.close(theirs);
        }
        let kept = self.read_all(&own.memory);
        assert!(kept.iter().all(|read| are_all(&read[..BYTES / 2], self.value)));
        self.end(own);
        seen
    }

    fn start(&mut self) {
        let mut context = null_mut();
        self.call(|| cuInit(0));
        // SAFETY: the driver writes the context to a local that outlives the call.
        self.call(|| unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) });
        self.call(|| cuCtxSetCurrent(context));
    }

    /// Waits until the other process is as far; `None` if it is gone.
    fn meet(&mut self) -> Option<()> {
        self.socket.write_all(&[1]).ok()?;
        self.socket.read_exact(&mut [0]).ok()
    }

    /// Sends what the other process needs, and receives the same.
    fn exchange(&mut self, own: &Own) -> Option<([Blob; 3], [OwnedFd; DESCRIPTORS])> {
        let bytes: Vec<u8> = own.blobs.iter().flat_map(|blob| blob.0).collect();
        send(&self.socket, &bytes, own.handles.each_ref().map(AsRawFd::as_raw_fd))?;
        let mut theirs = [0; 3 * 64];
        let handles = receive(&self.socket, &mut theirs)?;
        let blob = |at: usize| Blob(theirs[64 * at..][..64].try_into().expect("64 bytes"));
        Some(([blob(0), blob(1), blob(2)], handles))
    }

    fn fill(&mut self, ptr: u64, value: u8, bytes: usize) {
        // SAFETY: the two processes write different halves of the memory, and meet before they read.
        self.call(|| unsafe { cuMemsetD8_v2(ptr, value, bytes) });
    }

    fn read_all(&mut self, memory: &Three) -> [Vec<u8>; 3] {
        memory.map(|ptr| {
            let mut read = vec![0_u8; BYTES];
            let place = read.as_mut_ptr().cast();
            // SAFETY: the vector has as many bytes and outlives the call.
            self.call(|| unsafe { cuMemcpyDtoH_v2(place, ptr, BYTES) });
            read
        })
    }

    fn write_halves(&mut self, memory: &Three) {
        let half = BYTES / 2;
        memory.iter().for_each(|ptr| self.fill(ptr + half as u64, self.value + REPLY, half));
    }

    /// Makes memory, fills and exports it.
    fn export(&mut self) -> Own {
        let (mut pool, mut event, null) = (null_mut(), null_mut(), null_mut());
        let (mut physical, mut descriptors) = (0, [-1; DESCRIPTORS]);
        let (mut pooled, mut plain) = (0, 0);
        let mut blobs = [Blob([0; 64]); 3];
        let pool_props = MemPoolProps {
            allocation_type: 1,
            handle_types: FD.cast_unsigned(),
            location: DEVICE,
            win32_security_attributes: null,
            max_bytes: 0,
            reserved: [0; 56],
        };
        let props = MemAllocationProp {
            allocation_type: 1,
            handle_types: FD,
            location: DEVICE,
            win32_handle_meta_data: null,
            alloc_flags: [0; 8],
        };
        // SAFETY: the driver reads and writes locals that outlive the calls.
        unsafe {
            self.call(|| cuMemPoolCreate(&raw mut pool, &raw const pool_props));
            self.call(|| cuMemAllocFromPoolAsync(&raw mut pooled, BYTES, pool, null));
            self.call(|| cuMemAlloc_v2(&raw mut plain, BYTES));
            self.call(|| cuMemCreate(&raw mut physical, BYTES, &raw const props, 0));
            self.call(|| cuEventCreate(&raw mut event, EVENT_FLAGS));
        }
        let memory = [pooled, plain, self.map(physical)];
        memory.iter().for_each(|&ptr| self.fill(ptr, self.value, BYTES));
        self.call(|| cuEventRecord(event, null));
        let [pool_at, physical_at] = descriptors.each_mut().map(|at| (&raw mut *at).cast());
        let [pointer, handle, event_handle] = blobs.each_mut().map(|blob| &raw mut *blob);
        // SAFETY: the driver writes locals that outlive the calls.
        unsafe {
            self.call(|| cuMemPoolExportToShareableHandle(pool_at, pool, FD, 0));
            self.call(|| cuMemExportToShareableHandle(physical_at, physical, FD, 0));
            self.call(|| cuMemPoolExportPointer(pointer, pooled));
            self.call(|| cuIpcGetMemHandle(handle, plain));
            self.call(|| cuIpcGetEventHandle(event_handle, event));
        }
        // SAFETY: the calls made the descriptors for their caller.
        let handles = descriptors.map(|raw| unsafe { OwnedFd::from_raw_fd(raw) });
        Own { pool, physical, event, memory, handles, blobs }
    }

    /// Maps physical memory, for the device.
    fn map(&mut self, physical: u64) -> u64 {
        let mut ptr = 0;
        let access = MemAccessDesc { location: DEVICE, flags: 3 };
        // SAFETY: the driver reads and writes locals that outlive the calls. The processes count on
        // sharing the memory.
        unsafe {
            self.call(|| cuMemAddressReserve(&raw mut ptr, BYTES, 0, 0, 0));
            self.call(|| cuMemMap(ptr, BYTES, 0, physical, 0));
            self.call(|| cuMemSetAccess(ptr, BYTES, &raw const access, 1));
        }
        ptr
    }

    fn unmap(&mut self, ptr: u64, physical: u64) {
        // SAFETY: no code uses the memory any more.
        unsafe {
            self.call(|| cuMemUnmap(ptr, BYTES));
            self.call(|| cuMemAddressFree(ptr, BYTES));
            self.call(|| cuMemRelease(physical));
        }
    }

    /// Imports what the other process exported. `None` if a handle that names the process is not
    /// found, because it is gone.
    fn import(&mut self, blobs: &[Blob; 3], handles: &[OwnedFd; DESCRIPTORS]) -> Option<Theirs> {
        let (mut pool, mut event) = (null_mut(), null_mut());
        let (mut physical, mut pooled, mut plain) = (0, 0, 0);
        let [of_pool, of_physical] =
            handles.each_ref().map(|handle| without_provenance_mut(handle.as_raw_fd() as usize));
        let [pointer, handle, event_handle] = *blobs;
        // SAFETY: the driver reads and writes locals that outlive the calls.
        unsafe {
            self.call(|| cuMemPoolImportFromShareableHandle(&raw mut pool, of_pool, FD, 0));
            self.call(|| cuMemPoolImportPointer(&raw mut pooled, pool, &raw const pointer));
            self.call(|| cuMemImportFromShareableHandle(&raw mut physical, of_physical, FD));
        }
        let mapped = self.map(physical);
        let (mut opened, mut known) = (0, 0);
        // One of the two opens in a context of its own, which it destroys.
        let context = (self.value == 2).then(|| self.push_context());
        self.call(|| {
            // SAFETY: the driver writes a local that outlives the call.
            opened = unsafe { cuIpcOpenMemHandle_v2(&raw mut plain, handle, 1) };
            if context.is_some() {
                // SAFETY: the place may be null.
                assert_eq!(unsafe { cuCtxPopCurrent_v2(null_mut()) }, 0);
            }
            // SAFETY: the driver writes a local that outlives the call.
            known = unsafe { cuIpcOpenEventHandle(&raw mut event, event_handle) };
            0
        });
        if (opened, known) == (0, 0) {
            self.check_attributes(plain);
            return Some(Theirs {
                context,
                pool,
                physical,
                event,
                memory: [pooled, plain, mapped],
            });
        }
        // The process was killed: its memory has no descriptor, and its event either.
        assert!(matches!((opened, known), (0 | 1, 400)), "{opened} {known}");
        // It may have sent the byte of one meeting before; it sends no second one.
        assert!(self.meet().and_then(|()| self.meet()).is_none(), "it lives");
        if opened == 0 || context.is_some() {
            self.close_memory(plain, context);
        }
        self.let_go(pool, pooled, mapped, physical);
        None
    }

    fn push_context(&mut self) -> *mut c_void {
        let mut context = null_mut();
        // SAFETY: the driver writes a local that outlives the call.
        self.call(|| unsafe { cuCtxCreate_v2(&raw mut context, 0, 0) });
        context
    }

    /// Opened memory has a context, and its handle cannot be had again: an H200 says so too.
    fn check_attributes(&mut self, plain: u64) {
        let (mut context, mut is_capable) = (null_mut::<c_void>(), 7_u32);
        let [context_at, capable_at] =
            [(&raw mut context).cast(), (&raw mut is_capable).cast::<c_void>()];
        // SAFETY: the driver writes locals of the attributes' sizes, which outlive the calls.
        unsafe {
            self.call(|| cuPointerGetAttribute(context_at, 1, plain));
            self.call(|| cuPointerGetAttribute(capable_at, 10, plain));
        }
        assert!(!context.is_null() && is_capable == 0, "{context:?} {is_capable}");
    }

    fn close_memory(&mut self, plain: u64, context: Option<*mut c_void>) {
        // SAFETY: no code uses the memory any more, nor the context.
        self.call(|| unsafe {
            match context {
                Some(context) => cuCtxDestroy_v2(context),
                None => cuIpcCloseMemHandle(plain),
            }
        });
    }

    fn let_go(&mut self, pool: *mut c_void, pooled: u64, mapped: u64, physical: u64) {
        // SAFETY: no code uses the memory any more.
        unsafe {
            self.call(|| cuMemFreeAsync(pooled, null_mut()));
            self.call(|| cuMemPoolDestroy(pool));
        }
        self.unmap(mapped, physical);
    }

    fn close(&mut self, theirs: Theirs) {
        let Theirs { context, pool, physical, event, memory: [pooled, plain, mapped] } = theirs;
        self.call(|| cuStreamWaitEvent(null_mut(), event, 0));
        self.call(|| cuEventQuery(event));
        // SAFETY: no code uses the event any more.
        self.call(|| unsafe { cuEventDestroy_v2(event) });
        self.close_memory(plain, context);
        self.let_go(pool, pooled, mapped, physical);
    }

    fn end(&mut self, own: Own) {
        let Own { pool, physical, event, memory: [pooled, plain, mapped], handles, .. } = own;
        drop(handles);
        // SAFETY: no code uses the event and the memory any more.
        unsafe {
            self.call(|| cuEventDestroy_v2(event));
            self.call(|| cuMemFree_v2(plain));
            self.call(|| cuMemFreeAsync(pooled, null_mut()));
        }
        self.call(|| cuStreamSynchronize(null_mut()));
        // SAFETY: the handle is not used again.
        self.call(|| unsafe { cuMemPoolDestroy(pool) });
        self.unmap(mapped, physical);
        self.call(|| cuDevicePrimaryCtxRelease_v2(0));
    }
}
