//! The simulator with another device's memory: every byte that is free can be allocated, and no
//! more. Managers of both sides are then asked about the same figures.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewise_hal::{
    Backend, Capabilities, Code, DeviceId, DevicePtr, Error, HostAddresses, HostViews, MemoryInfo,
    Result, with_calls,
};

/// The figures of the device.
#[derive(Debug, Default)]
struct Memory {
    total_bytes: u64,
    free_bytes: u64,
    live: BTreeMap<u64, u64>,
}

/// The figures of an [`ExactDevice`], for its user.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures(Arc<Mutex<Memory>>);

impl Figures {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew.
    ///
    /// # Errors
    /// The bytes that are allocated still.
    pub(crate) fn reset(&self, total_bytes: u64, free_bytes: u64) -> std::result::Result<(), u64> {
        let mut memory = self.lock();
        let left = memory.live.values().sum();
        *memory = Memory { total_bytes, free_bytes, ..Memory::default() };
        if left == 0 { Ok(()) } else { Err(left) }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.lock().free_bytes
    }
}

/// A simulator with a device of exactly the memory that its [`Figures`] say.
#[derive(Debug)]
pub(crate) struct ExactDevice<B> {
    inner: B,
    figures: Figures,
}

impl<B> ExactDevice<B> {
    pub(crate) fn around(inner: B, figures: Figures) -> Self {
        Self { inner, figures }
    }

    fn memory(&self) -> Result<MemoryInfo> {
        let memory = self.figures.lock();
        let (free_bytes, total_bytes) = (memory.free_bytes, memory.total_bytes);
        Ok(MemoryInfo { free_bytes, total_bytes })
    }
}

impl<B: Backend> ExactDevice<B> {
    fn allocate(&self, device: DeviceId, bytes: u64) -> Result<DevicePtr> {
        let mut memory = self.figures.lock();
        if bytes > memory.free_bytes {
            return Err(Error::from_code("alloc_device", Code::OUT_OF_MEMORY));
        }
        let ptr = self.inner.alloc_device(device, bytes)?;
        memory.free_bytes -= bytes;
        memory.live.insert(ptr.0, bytes);
        Ok(ptr)
    }

    /// Notes that an allocation was freed, if it was one of device memory.
    fn freed(&self, ptr: DevicePtr) {
        let mut memory = self.figures.lock();
        let bytes = memory.live.remove(&ptr.0).unwrap_or(0);
        memory.free_bytes += bytes;
    }
}

// SAFETY: addresses come from the inner back end as they are, and that back end made the promise.
unsafe impl<B: Backend> HostAddresses for ExactDevice<B> {
    fn host_views(&self) -> HostViews {
        self.inner.host_views()
    }

    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
        self.inner.kernel_address(ptr)
    }
}

/// A method of the trait: the device's own figures, or the inner back end's answer.
macro_rules! method {
    (fn memory_info($device:ident: $type:ty) -> $answer:ty) => {
        fn memory_info(&self, _: $type) -> Result<$answer> {
            self.memory()
        }
    };
    (fn alloc_device($device:ident: $of:ty, $bytes:ident: $type:ty) -> $answer:ty) => {
        fn alloc_device(&self, $device: $of, $bytes: $type) -> Result<$answer> {
            self.allocate($device, $bytes)
        }
    };
    (unsafe fn free($ptr:ident: $type:ty) -> $answer:ty) => {
        unsafe fn free(&self, $ptr: $type) -> Result<$answer> {
            // SAFETY: no other code uses the allocation: the caller of this method promised that.
            unsafe { self.inner.free($ptr)? };
            self.freed($ptr);
            Ok(())
        }
    };
    (fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn $name(&self, $($argument: $type),*) -> Result<$answer> {
            self.inner.$name($($argument),*)
        }
    };
    (unsafe fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        unsafe fn $name(&self, $($argument: $type),*) -> Result<$answer> {
            // SAFETY: the inner method asks for the same as this one, and the caller of this one
            // promised it. All arguments are passed on unchanged.
            unsafe { self.inner.$name($($argument),*) }
        }
    };
}

macro_rules! forward {
    ($($call:ident = [$($unsafe:tt)?] fn $name:ident(
        $($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl<B: Backend> Backend for ExactDevice<B> {
            fn capabilities(&self) -> Capabilities {
                self.inner.capabilities()
            }

            fn clock_ns(&self) -> u64 {
                self.inner.clock_ns()
            }

            fn sleep_ns(&self, duration_ns: u64) {
                self.inner.sleep_ns(duration_ns)
            }

            $(method!($($unsafe)? fn $name($($argument: $type),*) -> $answer);)*
        }
    };
}

with_calls!(forward);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_free_byte_can_be_allocated_and_no_more() -> Result<()> {
        let figures = Figures::default();
        let device = ExactDevice::around(pagewise::sim()?, figures.clone());
        figures.reset(1000, 700).expect("nothing is allocated");
        assert!(device.alloc_device(DeviceId(0), 701).is_err());
        let all = device.alloc_device(DeviceId(0), 700)?;
        assert_eq!(device.memory_info(DeviceId(0))?.free_bytes, 0);
        // SAFETY: no other code knows the allocation.
        unsafe { device.free(all)? };
        assert_eq!(figures.free_bytes(), 700);
        Ok(())
    }
}
