//! Access programs: on the host by volatile accesses, on a device by a kernel.

use pagewise_hal::{
    AccessFlags, Code, DeviceAccess, DeviceId, DeviceTouch, Error, HostAccess, HostTouch, Location,
    PoolHandle, Result, Span, StreamHandle,
};

use crate::abi::handle;
use crate::allocation::Allocation;
use crate::backend::CudaBackend;
use crate::kernels::Launch;

fn refuse<T>(operation: &'static str, code: i32, why: &'static str) -> Result<T> {
    Err(Error::from_code(operation, code).with_detail(why))
}

/// How many places a program touches.
const fn places(span: Span, stride_bytes: u64) -> u64 {
    span.bytes.div_ceil(stride_bytes)
}

impl CudaBackend {
    /// # Safety
    /// As [`Backend::host_touch`](pagewise_hal::Backend::host_touch).
    pub(crate) unsafe fn touch_on_host(&self, touch: HostTouch) -> Result<u64> {
        const OPERATION: &str = "host_touch";
        let HostTouch { span, stride_bytes, .. } = touch;
        if stride_bytes == 0 {
            return refuse(OPERATION, Code::INVALID_VALUE, "the stride must be at least 1 byte");
        }
        if span.bytes == 0 {
            return Ok(0);
        }
        let writes = touch.access != HostAccess::Read;
        let may_touch = match self.admits_mapped(span, None, writes) {
            Some(admitted) => admitted,
            None => {
                let allocation = self.touchable(OPERATION, span)?;
                allocation.is_managed || allocation.is_host
            }
        };
        if !may_touch {
            return refuse(OPERATION, Code::ILLEGAL_ADDRESS, "the host cannot reach the memory");
        }
        // SAFETY: the caller promised that no other code uses the range. The check above found it
        // in one live allocation that the host reaches, at the same address.
        unsafe { self.host.touch(touch) }
    }

    /// # Safety
    /// As [`Backend::device_touch`](pagewise_hal::Backend::device_touch).
    pub(crate) unsafe fn touch_on_device(
        &self,
        touch: DeviceTouch,
        stream: StreamHandle,
    ) -> Result<u64> {
        const OPERATION: &str = "device_touch";
        let DeviceTouch { device: id, span, stride_bytes, access, blocks, threads } = touch;
        let device = self.device(OPERATION, id)?;
        let _used = self.use_stream(OPERATION, stream)?;
        // The driver refuses a launch for its stream before it looks at anything else, and long
        // before a kernel could fault. Default streams are those of the context that is current.
        let is_elsewhere = || -> Result<bool> {
            let of_stream = self.context_of(OPERATION, stream)?;
            Ok(of_stream.as_raw() != device.context.as_raw())
        };
        if !stream.is_default() && is_elsewhere()? {
            return refuse(OPERATION, Code::INVALID_HANDLE, "the stream is another device's");
        }
        if let Err(why) = touch.check() {
            return refuse(OPERATION, Code::INVALID_VALUE, why);
        }
        if span.bytes == 0 {
            return Ok(0);
        }
        let writes = access != DeviceAccess::Read;
        let may_touch = match self.admits_mapped(span, Some(Location::device(id)), writes) {
            Some(admitted) => admitted,
            None => self.reaches(id, &self.touchable(OPERATION, span)?),
        };
        if !may_touch {
            let why = "the device cannot reach the memory";
            return refuse(OPERATION, Code::ILLEGAL_ADDRESS, why);
        }
        let kernels = device.kernels()?;
        let context = &device.context;
        let cell = self.cells.take(context)?;
        cell.set(0);
        let launch = Launch {
            access,
            fenced: touch.is_serial(),
            blocks,
            threads,
            address: span.ptr.0,
            places: places(span, stride_bytes),
            stride_bytes,
            result: cell.address(),
        };
        // SAFETY: the caller promised that no other code uses the range. The check above found it
        // in one live allocation that the device reaches. The cell is mapped there and belongs to
        // this call.
        unsafe { kernels.launch(context, handle(stream.as_raw()), launch) }?;
        let wait = self.driver.table.stream_synchronize;
        // SAFETY: the driver dereferences the stream, which is live because this call uses it.
        context.call(OPERATION, || unsafe { wait(handle(stream.as_raw())) })?;
        let sum = cell.get();
        self.cells.put(cell);
        Ok(if access == DeviceAccess::Read { sum } else { 0 })
    }

    /// The allocation that holds the whole range.
    fn touchable(&self, operation: &'static str, span: Span) -> Result<Allocation> {
        let allocation = self.allocation_at(span.ptr).ok();
        match allocation.filter(|allocation| allocation.contains(span)) {
            Some(allocation) => Ok(allocation),
            None => {
                let why = "the range is not within one live allocation";
                refuse(operation, Code::ILLEGAL_ADDRESS, why)
            }
        }
    }

    /// Whether a device can access memory. Where it cannot, a kernel would end its context.
    fn reaches(&self, device: DeviceId, allocation: &Allocation) -> bool {
        if allocation.is_managed {
            return true;
        }
        if allocation.pool != 0 {
            // SAFETY: the handle is used in the next call only, and the driver has just named the
            // pool as that of a live allocation.
            let pool = unsafe { PoolHandle::from_raw(allocation.pool) };
            let access = self.pool_access(pool, Location::device(device));
            return access == Ok(AccessFlags::READ_WRITE);
        }
        allocation.is_host || allocation.device == device.0
    }
}
