//! The back end: the devices in use, the entry points of the version in use, and the context that a
//! call needs.

use std::sync::{Arc, OnceLock};

use pagewise_hal::{
    AccessFlags, Code, DeviceId, Error, ErrorKind, Location, PoolHandle, Result, Span, StreamHandle,
};

use crate::abi::{MemLocation, handle};
use crate::cells::Cells;
use crate::context::Context;
use crate::device::Device;
use crate::driver::Driver;
use crate::host::Host;
use crate::live::Live;
use crate::loaded::Modules;
use crate::mappings::Memories;
use crate::numa::NumaNodes;
use crate::observe::ObserverLog;

/// The CUDA driver of this machine.
///
/// Calls may come from any thread; each makes the context that it needs current there. Calls that
/// name no device use device 0, as the simulator does. Calls about one range allocate nothing
/// unless they fail.
// What every call reads is in the first cache line: a call into the driver leaves little in the
// caches.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CudaBackend {
    pub(crate) driver: Arc<Driver>,
    /// Devices 1 and up, once they are used.
    pub(crate) others: Box<[OnceLock<Device>]>,
    /// Device 0.
    pub(crate) home: Device,
    pub(crate) streams: Live,
    pub(crate) events: Live,
    pub(crate) modules: Modules,
    pub(crate) memories: Memories,
    pub(crate) cells: Cells,
    pub(crate) numa: NumaNodes,
    pub(crate) observer: Option<ObserverLog>,
    pub(crate) host: Box<dyn Host>,
}

impl CudaBackend {
    /// Retains a device's context and loads the touch kernels there, so that no later call pays
    /// for it: the first use of a device takes hundreds of milliseconds and of MiB.
    ///
    /// # Errors
    /// `InvalidDevice`; the driver's, if it cannot make a context or compile the kernels.
    pub fn prepare_device(&self, device: DeviceId) -> Result<()> {
        self.device("prepare_device", device)?.prepare(&self.cells)
    }

    /// A device's name, as `nvidia-smi` shows it (`cuDeviceGetName`).
    ///
    /// # Errors
    /// `InvalidDevice`.
    pub fn device_name(&self, device: DeviceId) -> Result<String> {
        const OPERATION: &str = "device_name";
        self.check_device(OPERATION, device)?;
        let mut text = [0_u8; 256];
        let get = self.driver.table.device_get_name;
        // SAFETY: the driver writes no more bytes than the length that it is given, which is that
        // of `text`, and ends them with a NUL.
        let code = unsafe { get(text.as_mut_ptr().cast(), text.len() as i32, device.0) };
        self.driver.check(OPERATION, code)?;
        let used = text.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(used).into_owned())
    }

    pub(crate) fn check_device(&self, operation: &'static str, id: DeviceId) -> Result<()> {
        if u32::try_from(id.0).is_ok_and(|ordinal| ordinal < self.driver.devices) {
            return Ok(());
        }
        Err(Error::from_code(operation, Code::INVALID_DEVICE)
            .with_detail("the device does not exist"))
    }

    /// A device in use; from now on it is.
    pub(crate) fn device(&self, operation: &'static str, id: DeviceId) -> Result<&Device> {
        if id.0 == 0 {
            return Ok(&self.home);
        }
        self.check_device(operation, id)?;
        let slot = &self.others[id.0 as usize - 1];
        if let Some(device) = slot.get() {
            return Ok(device);
        }
        let context = Context::retain(Arc::clone(&self.driver), id)?;
        // If another thread was faster, this one's context is released again.
        _ = slot.set(Device::new(context));
        Ok(slot.wait())
    }

    /// From now on other code may change contexts on threads that call this back end.
    #[cfg(feature = "cudarc")]
    pub(crate) fn expect_foreign_contexts(&self) {
        // Contexts that are retained from here on see the first, the others get the second.
        self.driver.expect_foreign_contexts();
        let others = self.others.iter().filter_map(OnceLock::get);
        others.chain([&self.home]).for_each(|device| device.context.forget());
    }

    /// The context that a call on a stream, which it uses, needs: the stream's own, or device 0's for default
    /// streams.
    #[inline]
    pub(crate) fn context_of(
        &self,
        operation: &'static str,
        stream: StreamHandle,
    ) -> Result<&Context> {
        if self.others.is_empty() || stream.is_default() {
            return Ok(&self.home.context);
        }
        self.context_of_stream(operation, stream)
    }

    #[inline(never)]
    fn context_of_stream(&self, operation: &'static str, stream: StreamHandle) -> Result<&Context> {
        let home = &self.home.context;
        let mut raw = std::ptr::null_mut();
        let find = self.driver.table.stream_get_ctx;
        // SAFETY: the driver dereferences the stream, which is live because the calling operation
        // uses it, and writes the context to `raw`, a local that outlives the call.
        home.call(operation, || unsafe { find(handle(stream.as_raw()), &raw mut raw) })?;
        let in_use = self.others.iter().filter_map(OnceLock::get).map(|device| &device.context);
        let mut found = in_use.filter(|context| context.as_raw() == raw);
        Ok(found.next().unwrap_or(home))
    }

    /// Whether calls can name locations.
    pub(crate) fn has_locations(&self) -> bool {
        self.driver.table.mem_advise.is_some()
    }

    /// Whether contents can be discarded.
    pub(crate) fn has_discard(&self) -> bool {
        self.driver.table.mem_discard_batch.is_some()
    }

    /// Whether default and current pools can be asked for by location.
    pub(crate) fn has_location_pools(&self) -> bool {
        self.driver.table.mem_get_mem_pool.is_some()
    }

    pub(crate) fn no_locations(&self, operation: &'static str, location: Location) -> Error {
        use pagewise_hal::LocationKind as Kind;
        let numa = matches!(location.kind, Kind::HOST_NUMA | Kind::HOST_NUMA_CURRENT);
        let instead = if numa {
            "an ordinal cannot name a host NUMA node: use the host, ordinal -1"
        } else {
            "use the ordinal form"
        };
        self.too_old(operation, "12.2", instead)
    }

    /// Adds the range, and to a plain "invalid value" what is wrong with it.
    #[cold]
    pub(crate) fn about(&self, error: Error, span: Span) -> Error {
        let why = match error.kind() {
            ErrorKind::InvalidValue => self.not_managed(span),
            _ => None,
        };
        match why {
            Some(why) => error.with_span(span).with_detail(why),
            None => error.with_span(span),
        }
    }

    pub(crate) fn pool_access(&self, pool: PoolHandle, location: Location) -> Result<AccessFlags> {
        let _used = self.use_pool("pool_access", pool)?;
        let (mut flags, mut location) = (0, MemLocation::from(location));
        let get = self.driver.table.mem_pool_get_access;
        // SAFETY: the driver reads `location` and writes `flags`, which are locals that outlive the
        // call. The pool is live because this call uses it.
        self.home.context.call("pool_access", || unsafe {
            get(&raw mut flags, handle(pool.as_raw()), &raw mut location)
        })?;
        Ok(AccessFlags(flags))
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        self.cells.free(&self.home.context);
    }
}
