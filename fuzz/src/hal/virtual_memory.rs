//! Calls that reserve addresses, create physical memory and map it.

use pagewise_hal::{
    AccessFlags, AllocationType, DevicePtr, DeviceTouch, Granularity, HandleTypes, Location,
    MemoryAccess, MemoryHandle, MemoryProps, Span, StreamHandle,
};

use super::round::Round;

/// The unit of sizes and addresses.
const UNIT: u64 = 2 << 20;

impl Round<'_, '_> {
    /// Calls about virtual memory, made from an access program: they draw nothing, so that an input
    /// means the same as before there were any. Nothing of theirs is left at the end.
    pub(super) fn virtual_memory(&mut self, touch: DeviceTouch, stream: StreamHandle) {
        let DeviceTouch { device, span, stride_bytes, .. } = touch;
        let location = Location::device(device);
        let props = MemoryProps::at(location);
        let wild = MemoryProps {
            allocation_type: AllocationType(span.bytes as i32 % 4),
            location: Location { kind: pagewise_hal::LocationKind(stride_bytes as i32 % 6), id: 0 },
            handle_types: HandleTypes::from_bits_retain(span.ptr.0 as u32 % 16),
        };
        for which in [Granularity::RECOMMENDED, Granularity(stride_bytes as i32)] {
            self.call("memory_granularity", |sim| sim.memory_granularity(wild, which));
            self.call("memory_granularity", |sim| sim.memory_granularity(props, which));
        }
        self.refused_calls(span, wild);
        let whole = |ptr| Span::new(ptr, 2 * UNIT);
        let hint = DevicePtr(span.ptr.0 / UNIT * UNIT);
        let reserve = |sim: &dyn pagewise_hal::Backend| sim.address_reserve(2 * UNIT, 0, hint);
        let Some(start) = self.call("address_reserve", reserve) else { return };
        let halves = [start, start.offset(UNIT)].map(|ptr| Span::new(ptr, UNIT));
        let made = self.call("memory_create", |sim| sim.memory_create(UNIT, props));
        for half in halves {
            let Some(memory) = made else { break };
            // SAFETY: only this round knows the memory, at both of its places.
            self.call("memory_map", |sim| unsafe { sim.memory_map(half, 0, memory) });
        }
        let access = MemoryAccess { location, access: AccessFlags::READ_WRITE };
        // SAFETY: only this round uses the memory.
        self.call("memory_set_access", |sim| unsafe {
            sim.memory_set_access(whole(start), &[access])
        });
        self.call("memory_access", |sim| sim.memory_access(start, location));
        let over = DeviceTouch { span: Span::new(start, 2 * UNIT), ..touch };
        // SAFETY: only this round uses the memory, from one thread.
        self.call("device_touch", |sim| unsafe { sim.device_touch(over, stream) });
        // SAFETY: only this round uses the memory, from one thread.
        self.call("memset", |sim| unsafe { sim.memset(whole(start), 3, stream) });
        if let Some(memory) = made {
            // SAFETY: the reservation still holds memory, so the call is refused and frees nothing.
            self.call("address_free", |sim| unsafe { sim.address_free(whole(start)) });
            // SAFETY: the round does not use the handle again.
            self.call("memory_release", |sim| unsafe { sim.memory_release(memory) });
        }
        for half in halves {
            // SAFETY: the round does not use the memory again.
            self.call("memory_unmap", |sim| unsafe { sim.memory_unmap(half) });
        }
        // SAFETY: the round does not use the addresses again.
        let freed = self.call("address_free", |sim| unsafe { sim.address_free(whole(start)) });
        assert_eq!(freed, Some(()), "nothing is mapped any more");
    }

    /// Calls about what does not exist.
    fn refused_calls(&mut self, span: Span, wild: MemoryProps) {
        let (odd, none) = (span.bytes | 1, MemoryHandle::checked(span.ptr.0 | 1 << 60));
        self.call("address_reserve", |sim| sim.address_reserve(odd, span.bytes, DevicePtr(1)));
        self.call("memory_create", |sim| sim.memory_create(odd, wild));
        self.call("memory_access", |sim| sim.memory_access(span.ptr, Location::NONE));
        // SAFETY: the memory does not exist, and neither does the reservation.
        unsafe {
            self.call("memory_release", |sim| sim.memory_release(none));
            self.call("memory_map", |sim| sim.memory_map(span, 0, none));
            self.call("memory_unmap", |sim| sim.memory_unmap(span));
            self.call("memory_set_access", |sim| sim.memory_set_access(span, &[]));
            self.call("address_free", |sim| sim.address_free(span));
        }
    }
}
