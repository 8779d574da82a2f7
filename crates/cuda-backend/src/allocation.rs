//! The driver's knowledge of the allocation behind an address.

use pagewise_hal::{Code, DevicePtr, Error, PointerAttribute, Result, Span};

use crate::backend::CudaBackend;

/// `CU_MEMORYTYPE_HOST`
const MEMORY_TYPE_HOST: u32 = 1;

/// The driver's knowledge of an allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocation {
    pub(crate) span: Span,
    /// Managed by itself or through its pool.
    pub(crate) is_managed: bool,
    /// Page-locked host memory.
    pub(crate) is_host: bool,
    pub(crate) device: i32,
    /// The handle of its pool, 0 for none.
    pub(crate) pool: u64,
}

impl Allocation {
    pub(crate) fn contains(&self, span: Span) -> bool {
        let end = |span: Span| span.end().unwrap_or(u64::MAX);
        self.span.ptr <= span.ptr && span.end().is_some() && end(span) <= end(self.span)
    }
}

impl CudaBackend {
    /// The allocation that an address lies in.
    pub(crate) fn allocation_at(&self, ptr: DevicePtr) -> Result<Allocation> {
        const ASKED: [PointerAttribute; 6] = [
            PointerAttribute::RANGE_START_ADDR,
            PointerAttribute::RANGE_SIZE,
            PointerAttribute::IS_MANAGED,
            PointerAttribute::MEMORY_TYPE,
            PointerAttribute::DEVICE_ORDINAL,
            PointerAttribute::MEMPOOL_HANDLE,
        ];
        const OPERATION: &str = "pointer_attribute";
        let mut numbers = ASKED.map(|attribute| attribute.0);
        let mut values = [0_u64; ASKED.len()];
        let mut places = values.each_mut().map(|value| std::ptr::from_mut(value).cast());
        let call = self.driver.table.pointer_get_attributes;
        // SAFETY: the driver writes at most 8 bytes for each of these attributes, and each of the
        // places has 8. An address of no allocation leaves them zero.
        self.home.context.call(OPERATION, || unsafe {
            call(ASKED.len() as u32, numbers.as_mut_ptr(), places.as_mut_ptr(), ptr.0)
        })?;
        let [start, bytes, is_managed, memory_type, ordinal, pool] = values;
        if bytes == 0 {
            return Err(Error::from_code(OPERATION, Code::INVALID_VALUE)
                .with_detail("the address belongs to no live allocation"));
        }
        // For memory of host pools the driver counts the start from that of the pool. Then the
        // address counts as the first byte, so that a part is checked against the whole's length.
        let start = if ptr.0.wrapping_sub(start) < bytes { start } else { ptr.0 };
        Ok(Allocation {
            span: Span::new(DevicePtr(start), bytes),
            is_managed: is_managed as u32 != 0,
            is_host: memory_type as u32 == MEMORY_TYPE_HOST,
            device: ordinal as u32 as i32,
            pool,
        })
    }

    /// The reason why a range is not a managed range, if it is not.
    #[cold]
    pub(crate) fn not_managed(&self, span: Span) -> Option<&'static str> {
        if span.bytes == 0 || span.ptr.is_null() {
            return Some("the range is empty or starts at the null address");
        }
        let Ok(allocation) = self.allocation_at(span.ptr) else {
            return Some("the range does not start in a live allocation");
        };
        if !allocation.is_managed {
            return Some("the range is not managed memory");
        }
        (!allocation.contains(span)).then_some("the range passes the end of its allocation")
    }
}
