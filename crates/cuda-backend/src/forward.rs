//! The driver as a [`Backend`], made from the list of all calls: each is the method of
//! [`CudaBackend`] with the same name.

use pagewise_hal::{
    Backend, BatchSupport, Capabilities, DeviceAttribute, DeviceId, DevicePtr, HostAddresses,
    HostViews, Result, with_calls,
};

use crate::backend::CudaBackend;

// SAFETY: unified addressing, which every driver of CUDA 12 requires: managed and pinned memory has
// one address for host and device (CUDA programming guide, unified virtual address space). The
// driver gives no byte out twice before it is freed, and keeps contents when it moves pages that
// are not marked as discarded, which only `unsafe` calls do.
unsafe impl HostAddresses for CudaBackend {
    fn host_views(&self) -> HostViews {
        HostViews::Direct
    }

    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
        ptr
    }
}

macro_rules! forwarded {
    (fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        #[inline]
        fn $name(&self, $($argument: $type),*) -> Result<$answer> {
            CudaBackend::$name(self, $($argument),*)
        }
    };
    (unsafe fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        #[inline]
        unsafe fn $name(&self, $($argument: $type),*) -> Result<$answer> {
            // SAFETY: the method of `CudaBackend` asks for the same as the trait's method, and the
            // caller of that promised it.
            unsafe { CudaBackend::$name(self, $($argument),*) }
        }
    };
}

macro_rules! forward {
    ($($call:ident = [$($unsafe:tt)?] fn $name:ident(
        $($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl Backend for CudaBackend {
            fn capabilities(&self) -> Capabilities {
                let table = &self.driver.table;
                let mut found = Capabilities::of_driver("cuda", self.driver.library.effective);
                found.locations = self.has_locations();
                found.prefetch_batch = match table.mem_prefetch_batch {
                    Some(_) => BatchSupport::Native,
                    None => BatchSupport::Loop,
                };
                let batch = table.memcpy_batch.is_some() || table.memcpy_batch_fail_index.is_some();
                found.copy_batch = if batch { BatchSupport::Native } else { BatchSupport::Loop };
                found.discard = self.has_discard();
                found.location_pools = self.has_location_pools();
                let concurrent = DeviceAttribute::CONCURRENT_MANAGED_ACCESS;
                found.concurrent_managed_access = (0..self.driver.devices)
                    .all(|id| self.device_attribute(DeviceId(id.cast_signed()), concurrent) == Ok(1));
                found.virtual_memory = self.has_virtual_memory();
                found.events = self.observer.is_some();
                found.host_page_map = self.host.shows_pages();
                found
            }

            fn clock_ns(&self) -> u64 {
                self.host.clock_ns()
            }

            fn sleep_ns(&self, duration_ns: u64) {
                self.host.sleep_ns(duration_ns);
            }

            $(forwarded!($($unsafe)? fn $name($($argument: $type),*) -> $answer);)*
        }
    };
}

with_calls!(forward);
