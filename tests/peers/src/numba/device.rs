//! The simulator as numba's stand-in for a driver is: it counts the bytes of device memory, notes
//! each call that gives, takes or fills memory, and fails those that it is told to.

use std::collections::{BTreeMap, BTreeSet};

use pagewise_hal::{
    AttachFlags, Backend, Code, DeviceAttribute, DeviceId, DevicePtr, Error, HostAllocFlags,
    HostRegisterFlags, IpcMemHandle, MemoryInfo, Result, Span, StreamHandle, with_calls,
};

use crate::around::{DeviceAround, passed_on};

/// Bytes of each region of host memory.
pub(super) const REGION_BYTES: u64 = 8192;

/// The figures of the device, and the calls that were made.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(super) total_bytes: u64,
    pub(super) can_map: bool,
    pub(super) calls: Vec<String>,
    pub(super) fails: BTreeMap<String, i32>,
    /// First bytes of the regions of host memory.
    pub(super) regions: Vec<u64>,
    used_bytes: u64,
    given: BTreeMap<u64, Given>,
    registered: BTreeSet<DevicePtr>,
    numbers: u64,
}

#[derive(Debug, Clone, Copy)]
struct Given {
    number: u64,
    bytes: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Device,
    Managed,
    Pinned,
    /// No memory is behind the address.
    MadeUp,
}

impl Notes {
    /// The name of the memory at an address: the number of the piece, and how far in.
    fn name(&self, ptr: DevicePtr) -> Option<String> {
        if let Some(region) = self.regions.iter().position(|&start| start == ptr.0) {
            return Some(format!("r{region}"));
        }
        let (start, given) = self.given.range(..=ptr.0).next_back()?;
        match ptr.0 - start {
            0 => Some(format!("#{}", given.number)),
            further if further < given.bytes => Some(format!("#{}+{further}", given.number)),
            _ => None,
        }
    }

    fn fail<T>(&mut self, text: &str, code: i32) -> Result<T> {
        self.calls.push(format!("{text} !{code}"));
        Err(Error::from_code("numba", code))
    }

    /// Notes a call, and fails if calls of this kind are to fail.
    pub(super) fn note(&mut self, call: &str, about: &str) -> Result<()> {
        let text = format!("{call} {about}").trim_end().to_owned();
        match self.fails.get(call) {
            Some(&code) => self.fail(&text, code),
            None => {
                self.calls.push(text);
                Ok(())
            }
        }
    }

    fn note_about(&mut self, call: &str, ptr: DevicePtr, more: &str) -> Result<()> {
        match self.name(ptr) {
            Some(name) => self.note(call, &format!("{name} {more}")),
            None => self.fail("nowhere", Code::INVALID_VALUE),
        }
    }

    fn give(&mut self, ptr: DevicePtr, bytes: u64, kind: Kind) -> String {
        let number = self.numbers;
        self.numbers += 1;
        self.given.insert(ptr.0, Given { number, bytes, kind });
        format!("#{number}")
    }

    /// Gives an address that no memory is behind, and its name.
    pub(super) fn make_up(&mut self, bytes: u64) -> (DevicePtr, String) {
        let ptr = DevicePtr((1 << 60) + (self.numbers << 24));
        (ptr, self.give(ptr, bytes, Kind::MadeUp))
    }

    fn take(&mut self, ptr: DevicePtr) {
        let given = self.given.remove(&ptr.0);
        if let Some(given) = given.filter(|given| given.kind == Kind::Device) {
            self.used_bytes -= given.bytes;
        }
    }

    /// Memory that was given and not taken back, and whether it is pinned.
    pub(super) fn left(&self) -> Vec<(DevicePtr, bool)> {
        let real = self.given.iter().filter(|(_, given)| given.kind != Kind::MadeUp);
        real.map(|(&ptr, given)| (DevicePtr(ptr), given.kind == Kind::Pinned)).collect()
    }

    /// Regions that are registered still.
    pub(super) fn registered(&self) -> Vec<DevicePtr> {
        self.registered.iter().copied().collect()
    }
}

/// A back end with such figures.
pub(super) type NotedDevice<B> = DeviceAround<B, Notes>;

impl<B: Backend> NotedDevice<B> {
    fn allocate(&self, device: DeviceId, bytes: u64) -> Result<DevicePtr> {
        let mut figures = self.figures.lock();
        let is_full = bytes > figures.total_bytes - figures.used_bytes;
        if is_full && !figures.fails.contains_key("alloc") {
            return figures.fail(&format!("alloc {bytes}"), Code::OUT_OF_MEMORY);
        }
        figures.note("alloc", &bytes.to_string())?;
        let ptr = self.inner.alloc_device(device, bytes)?;
        figures.used_bytes += bytes;
        figures.give(ptr, bytes, Kind::Device);
        Ok(ptr)
    }

    fn allocate_managed(&self, bytes: u64, flags: AttachFlags) -> Result<DevicePtr> {
        let mut figures = self.figures.lock();
        figures.note("alloc_managed", &format!("{bytes} {}", flags.bits()))?;
        let ptr = self.inner.alloc_managed(bytes, flags)?;
        figures.give(ptr, bytes, Kind::Managed);
        Ok(ptr)
    }

    fn allocate_pinned(&self, bytes: u64, flags: HostAllocFlags) -> Result<DevicePtr> {
        let mut figures = self.figures.lock();
        figures.note("alloc_pinned", &format!("{bytes} {}", flags.bits()))?;
        let ptr = self.inner.alloc_pinned(bytes, flags)?;
        figures.give(ptr, bytes, Kind::Pinned);
        Ok(ptr)
    }

    fn about_to_free(&self, call: &str, ptr: DevicePtr) -> Result<()> {
        let mut figures = self.figures.lock();
        figures.note_about(call, ptr, "")?;
        figures.take(ptr);
        Ok(())
    }

    /// # Safety
    /// As [`Backend::host_register`].
    unsafe fn register(&self, span: Span, flags: HostRegisterFlags) -> Result<()> {
        let mut figures = self.figures.lock();
        let name = figures.name(span.ptr).unwrap_or_default();
        let about = format!("{name} {}", flags.bits());
        if figures.fails.contains_key("register") {
            return figures.note("register", &about);
        }
        // SAFETY: the caller promised what the inner method asks for.
        match unsafe { self.inner.host_register(span, flags) } {
            Ok(()) => {
                figures.registered.insert(span.ptr);
                figures.note("register", &about)
            }
            Err(error) => {
                let code = error.code().unwrap_or(0);
                figures.fail(&format!("register {about}"), code)
            }
        }
    }

    fn attribute(&self, device: DeviceId, attribute: DeviceAttribute) -> Result<i32> {
        if attribute == DeviceAttribute::CAN_MAP_HOST_MEMORY {
            return Ok(i32::from(self.figures.lock().can_map));
        }
        self.inner.device_attribute(device, attribute)
    }

    fn info(&self) -> Result<MemoryInfo> {
        let mut figures = self.figures.lock();
        figures.note("info", "")?;
        let (total_bytes, used) = (figures.total_bytes, figures.used_bytes);
        Ok(MemoryInfo { free_bytes: total_bytes - used, total_bytes })
    }

    fn handle(&self, ptr: DevicePtr) -> Result<IpcMemHandle> {
        self.figures.lock().note_about("ipc", ptr, "")?;
        self.inner.ipc_mem_handle(ptr)
    }
}

/// A method of the trait: one that is noted, or the inner back end's answer.
macro_rules! method {
    (fn device_attribute($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn device_attribute(&self, $($argument: $type),*) -> Result<$answer> {
            self.attribute($($argument),*)
        }
    };
    (fn memory_info($device:ident: $type:ty) -> $answer:ty) => {
        fn memory_info(&self, _: $type) -> Result<$answer> {
            self.info()
        }
    };
    (fn alloc_device($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn alloc_device(&self, $($argument: $type),*) -> Result<$answer> {
            self.allocate($($argument),*)
        }
    };
    (fn alloc_managed($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn alloc_managed(&self, $($argument: $type),*) -> Result<$answer> {
            self.allocate_managed($($argument),*)
        }
    };
    (fn alloc_pinned($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn alloc_pinned(&self, $($argument: $type),*) -> Result<$answer> {
            self.allocate_pinned($($argument),*)
        }
    };
    (fn ipc_mem_handle($ptr:ident: $type:ty) -> $answer:ty) => {
        fn ipc_mem_handle(&self, $ptr: $type) -> Result<$answer> {
            self.handle($ptr)
        }
    };
    (unsafe fn free($ptr:ident: $type:ty) -> $answer:ty) => {
        unsafe fn free(&self, $ptr: $type) -> Result<$answer> {
            self.about_to_free("free", $ptr)?;
            // SAFETY: no other code uses the allocation: the caller of this method promised that.
            unsafe { self.inner.free($ptr) }
        }
    };
    (unsafe fn free_pinned($ptr:ident: $type:ty) -> $answer:ty) => {
        unsafe fn free_pinned(&self, $ptr: $type) -> Result<$answer> {
            self.about_to_free("free_pinned", $ptr)?;
            // SAFETY: no other code uses the allocation: the caller of this method promised that.
            unsafe { self.inner.free_pinned($ptr) }
        }
    };
    (unsafe fn host_register($($argument:ident: $type:ty),*) -> $answer:ty) => {
        unsafe fn host_register(&self, $($argument: $type),*) -> Result<$answer> {
            // SAFETY: the caller promised what the inner method asks for.
            unsafe { self.register($($argument),*) }
        }
    };
    (unsafe fn host_unregister($ptr:ident: $type:ty) -> $answer:ty) => {
        unsafe fn host_unregister(&self, $ptr: $type) -> Result<$answer> {
            let mut figures = self.figures.lock();
            figures.note_about("unregister", $ptr, "")?;
            figures.registered.remove(&$ptr);
            // SAFETY: no device uses the memory: the caller of this method promised that.
            unsafe { self.inner.host_unregister($ptr) }
        }
    };
    (unsafe fn memset($span:ident: $of:ty, $value:ident: $byte:ty, $stream:ident: $in:ty)
        -> $answer:ty) => {
        unsafe fn memset(&self, $span: Span, $value: u8, $stream: StreamHandle) -> Result<$answer> {
            let more = format!("{} {}", $span.bytes, $value);
            self.figures.lock().note_about("memset", $span.ptr, &more)?;
            // SAFETY: the caller promised what the inner method asks for.
            unsafe { self.inner.memset($span, $value, $stream) }
        }
    };
    ($($other:tt)*) => {
        passed_on!($($other)*);
    };
}

macro_rules! forward {
    ($($call:ident = [$($unsafe:tt)?] fn $name:ident(
        $($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl<B: Backend> Backend for NotedDevice<B> {
            passed_on!();
            $(method!($($unsafe)? fn $name($($argument: $type),*) -> $answer);)*
        }
    };
}

with_calls!(forward);
