//! Attribute numbers of ranges, pointers, pools and devices.
//!
//! All are integers with named constants: the driver answers a number that it does not know with
//! `CUDA_ERROR_INVALID_VALUE`, which means "unknown to this driver", never "no".

macro_rules! attribute {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $constant:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub i32);

        impl $name {
            $($(#[$item])* pub const $constant: Self = Self($value);)*
        }
    };
}

attribute! {
    /// An attribute of a range of managed memory (`CUmem_range_attribute`).
    ///
    /// `ACCESSED_BY` is a list and has a method of its own,
    /// [`Backend::range_accessed_by`](crate::Backend::range_accessed_by).
    RangeAttribute {
        /// 1 if the whole range is read-mostly, else 0.
        READ_MOSTLY = 1;
        /// Device ordinal, -1 host, -2 none or mixed.
        PREFERRED_LOCATION = 2;
        /// The list of processors advised for the whole range.
        ACCESSED_BY = 3;
        /// The location of the last prefetch *request*: ordinal, -1 host, -2 never or mixed.
        LAST_PREFETCH_LOCATION = 4;
        /// [`LocationKind`](crate::LocationKind) of the preferred location; 0 none or mixed. From 12.2.
        PREFERRED_LOCATION_TYPE = 5;
        /// Its id; -2 none or mixed, -1 host. From 12.2.
        PREFERRED_LOCATION_ID = 6;
        /// [`LocationKind`](crate::LocationKind) of the last prefetch; 0 none or mixed. From 12.2.
        LAST_PREFETCH_LOCATION_TYPE = 7;
        /// Its id as the call gave it. From 12.2.
        LAST_PREFETCH_LOCATION_ID = 8;
    }
}

attribute! {
    /// An attribute of an address (`CUpointer_attribute`).
    PointerAttribute {
        /// 1 host, 2 device; managed memory answers 2.
        MEMORY_TYPE = 2;
        /// Address by which devices reach the memory.
        DEVICE_POINTER = 3;
        /// Address by which the host reaches the memory. Memory of a device alone has none:
        /// `InvalidValue`.
        HOST_POINTER = 4;
        /// Unique in the process for the life of the process.
        BUFFER_ID = 7;
        /// 1 for managed memory, that of managed pools included (driver 580).
        IS_MANAGED = 8;
        /// The device that the allocation belongs to.
        DEVICE_ORDINAL = 9;
        /// Address of the allocation's first byte.
        RANGE_START_ADDR = 11;
        /// Bytes requested for the allocation.
        RANGE_SIZE = 12;
        /// 1 if the address is mapped.
        MAPPED = 13;
        /// Handle types that the allocation can be exported as.
        ALLOWED_HANDLE_TYPES = 14;
        /// The pool that the allocation came from, 0 if none.
        MEMPOOL_HANDLE = 17;
    }
}

attribute! {
    /// An attribute of a memory pool (`CUmemPool_attribute`).
    PoolAttribute {
        /// Reuse memory across streams along event dependencies; 0 or 1, initially 1.
        REUSE_FOLLOW_EVENT_DEPENDENCIES = 1;
        /// Reuse memory once its free has completed; 0 or 1, initially 1.
        REUSE_ALLOW_OPPORTUNISTIC = 2;
        /// Reuse memory by making streams wait for each other; 0 or 1, initially 1.
        REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3;
        /// Bytes that stay reserved when a stream, event or device is synchronised; initially 0.
        RELEASE_THRESHOLD = 4;
        /// Bytes reserved now; read-only.
        RESERVED_MEM_CURRENT = 5;
        /// Most bytes reserved since the last reset; may be set to 0 only.
        RESERVED_MEM_HIGH = 6;
        /// Bytes in use now; read-only.
        USED_MEM_CURRENT = 7;
        /// Most bytes in use since the last reset; may be set to 0 only.
        USED_MEM_HIGH = 8;
        /// [`AllocationType`](crate::AllocationType); read-only, from 13.2.
        ALLOCATION_TYPE = 9;
        /// Handle types; read-only, from 13.2.
        EXPORT_HANDLE_TYPES = 10;
        /// Location id; read-only, from 13.2.
        LOCATION_ID = 11;
        /// Location type; read-only, from 13.2.
        LOCATION_TYPE = 12;
        /// Size limit in bytes, 0 none; read-only, from 13.2.
        MAX_POOL_SIZE = 13;
    }
}

attribute! {
    /// An attribute of a device (`CUdevice_attribute`): those that decide how managed memory behaves,
    /// and those that name the device.
    DeviceAttribute {
        /// 1 if the device shares physical memory with the host.
        INTEGRATED = 18;
        /// 1 if the device can reach page-locked host memory.
        CAN_MAP_HOST_MEMORY = 19;
        /// The device's bus on the PCI. With the device id and the domain id it names the device
        /// on its machine, also for processes that number their devices otherwise.
        PCI_BUS_ID = 33;
        /// The device's number on its PCI bus.
        PCI_DEVICE_ID = 34;
        /// 1 if one address space serves host and device.
        UNIFIED_ADDRESSING = 41;
        /// The domain of the device's PCI bus.
        PCI_DOMAIN_ID = 50;
        /// Major compute capability.
        COMPUTE_CAPABILITY_MAJOR = 75;
        /// Minor compute capability.
        COMPUTE_CAPABILITY_MINOR = 76;
        /// 1 if managed memory can be allocated at all.
        MANAGED_MEMORY = 83;
        /// 1 if the device reaches ordinary host memory.
        PAGEABLE_MEMORY_ACCESS = 88;
        /// 1 if host and device may use managed memory at the same time. Most differences between
        /// systems follow from it.
        CONCURRENT_MANAGED_ACCESS = 89;
        /// 1 if the device reaches ordinary host memory through the host's page tables.
        PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100;
        /// 1 if the host reaches managed memory on the device without migration.
        DIRECT_MANAGED_MEM_ACCESS_FROM_HOST = 101;
        /// 1 if physical memory can be created and mapped apart from addresses.
        VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102;
        /// 1 if stream-ordered allocation works.
        MEMORY_POOLS_SUPPORTED = 115;
        /// Handle types that pools can export.
        MEMPOOL_SUPPORTED_HANDLE_TYPES = 119;
        /// The host NUMA node nearest to the device, -1 without NUMA. From 12.2.
        HOST_NUMA_ID = 134;
        /// 1 if pools on a host NUMA node work. From 12.9.
        HOST_NUMA_MEMORY_POOLS_SUPPORTED = 142;
        /// 1 if pools on the host work. From 13.0.
        HOST_MEMORY_POOLS_SUPPORTED = 144;
    }
}
