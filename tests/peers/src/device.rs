//! The simulator with another device's memory: every byte that is free can be allocated, and no
//! more. Managers of both sides are then asked about the same figures.

use std::collections::BTreeMap;

use pagewise_hal::{Backend, Code, DeviceId, DevicePtr, Error, MemoryInfo, Result, with_calls};

use crate::around::{DeviceAround, Figures, passed_on};

/// The memory of the device.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    total_bytes: u64,
    free_bytes: u64,
    live: BTreeMap<u64, u64>,
}

impl Figures<Memory> {
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

/// A simulator with a device of exactly the memory that its figures say.
pub(crate) type ExactDevice<B> = DeviceAround<B, Memory>;

impl<B> ExactDevice<B> {
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
    ($($other:tt)*) => {
        passed_on!($($other)*);
    };
}

macro_rules! forward {
    ($($call:ident = [$($unsafe:tt)?] fn $name:ident(
        $($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl<B: Backend> Backend for ExactDevice<B> {
            passed_on!();
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
        let device = ExactDevice::new(pagewise::sim()?, figures.clone());
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
