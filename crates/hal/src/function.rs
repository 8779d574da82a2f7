//! Kernels of modules as a driver describes them: parameters, attributes, occupancy.

/// The place of a parameter among those of its kernel (`cuFuncGetParamInfo`), in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ParamInfo {
    /// From the first byte of all parameters. A multiple of the parameter's alignment.
    pub offset_bytes: u64,
    /// Its size.
    pub bytes: u64,
}

impl ParamInfo {
    /// Whether a value of so many bytes and this alignment is one of the parameter.
    ///
    /// ```
    /// use pagewise_hal::ParamInfo;
    ///
    /// let second = ParamInfo { offset_bytes: 4, bytes: 8 };
    /// assert!(second.takes(8, 4) && !second.takes(4, 4) && !second.takes(8, 8));
    /// ```
    #[must_use]
    pub const fn takes(self, bytes: u64, align_bytes: u64) -> bool {
        self.bytes == bytes
            && match self.offset_bytes.checked_rem(align_bytes) {
                Some(rest) => rest == 0,
                None => false,
            }
    }
}

/// An attribute of a kernel (`CUfunction_attribute`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FunctionAttribute(pub i32);

impl FunctionAttribute {
    /// The most threads of a block.
    pub const MAX_THREADS_PER_BLOCK: Self = Self(0);
    /// Bytes of shared memory that each block has before a launch adds to it.
    pub const SHARED_SIZE_BYTES: Self = Self(1);
    /// Bytes of constant memory of the module.
    pub const CONST_SIZE_BYTES: Self = Self(2);
    /// Bytes of local memory of each thread.
    pub const LOCAL_SIZE_BYTES: Self = Self(3);
    /// Registers of each thread. The simulator estimates them.
    pub const NUM_REGS: Self = Self(4);
    /// Ten times the major compute capability that the PTX is for, and the minor one.
    pub const PTX_VERSION: Self = Self(5);
    /// The same of the code that runs.
    pub const BINARY_VERSION: Self = Self(6);
    /// The most bytes of shared memory that a launch may add. The only one here that can be
    /// [set](crate::Backend::function_set_attribute): blocks with more than 48 KiB need it.
    pub const MAX_DYNAMIC_SHARED_SIZE_BYTES: Self = Self(8);
}

/// The block that keeps most threads busy (`cuOccupancyMaxPotentialBlockSize`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BestBlock {
    /// Blocks of the smallest grid that fills the device.
    pub grid_blocks: u32,
    /// Threads of a block.
    pub block_threads: u32,
}
