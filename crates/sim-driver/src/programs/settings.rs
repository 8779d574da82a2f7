//! Attributes of functions: what an image says of a kernel, and what a program sets.

use std::ffi::c_int;

use pagewise_hal::Code;

use super::limits::Limits;
use crate::image::Image;
use crate::image::parts::Kernel;
use crate::outcome::Outcome;

/// Bytes of shared memory that a block may have unless its kernel asks for more.
const SHARED_BYTES: u64 = 48 << 10;

/// Registers of a thread of a kernel that cannot be executed: with as many a multiprocessor has room
/// for all its threads.
const REGISTERS: u32 = 32;

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`
const DYNAMIC_SHARED: c_int = 8;
/// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`
const CARVEOUT: c_int = 9;
/// `CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH`, and then the height and the depth
const CLUSTER: [c_int; 3] = [11, 12, 13];
/// `CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED`
const NON_PORTABLE: c_int = 14;
/// `CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE`
const SCHEDULING: c_int = 15;

/// Attributes of a function that a program set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    dynamic_shared: Option<u64>,
    carveout: c_int,
    cluster: Option<[c_int; 3]>,
    pub(crate) is_non_portable: bool,
    scheduling: c_int,
}

impl Default for Settings {
    fn default() -> Self {
        let (dynamic_shared, cluster) = (None, None);
        Self { dynamic_shared, carveout: -1, cluster, is_non_portable: false, scheduling: 0 }
    }
}

impl Settings {
    /// The most bytes of shared memory that a launch may add to those of the kernel.
    pub(crate) fn dynamic_shared(&self, kernel: &Kernel) -> u64 {
        self.dynamic_shared.unwrap_or(SHARED_BYTES.saturating_sub(kernel.shared_bytes))
    }

    /// The cluster that each launch has.
    pub(crate) fn cluster(&self, kernel: &Kernel) -> Option<[u32; 3]> {
        let set = self.cluster.map(|set| set.map(c_int::unsigned_abs));
        kernel.required_cluster.or(set.filter(|set| set.iter().any(|one| *one > 0)))
    }

    /// `cuFuncGetAttribute`, as an H200 answers.
    pub(crate) fn get(
        &self,
        attribute: c_int,
        (image, kernel): (&Image, &Kernel),
        limits: &Limits,
    ) -> Outcome<c_int> {
        let number = |value: u64| c_int::try_from(value).unwrap_or(c_int::MAX);
        let cluster = |index: usize| {
            let set = self.cluster(kernel).and_then(|cluster| cluster.get(index).copied());
            number(u64::from(set.unwrap_or_default()))
        };
        Ok(match attribute {
            0 => number(u64::from(kernel.threads_max().unwrap_or(limits.block_threads))),
            1 => number(kernel.shared_bytes),
            2 => number(image.constant_bytes()),
            3 => number(kernel.local_bytes),
            4 => number(u64::from(registers(image, kernel))),
            5 => number(u64::from(image.target.capability)),
            // PTX is compiled for the device.
            6 if image.text.is_empty() => number(u64::from(image.target.capability)),
            6 => number(u64::from(limits.capability)),
            7 => 0,
            DYNAMIC_SHARED => number(self.dynamic_shared(kernel)),
            CARVEOUT => self.carveout,
            10 => c_int::from(kernel.needs_cluster || kernel.required_cluster.is_some()),
            11..=13 => cluster(attribute.wrapping_sub(11) as usize),
            NON_PORTABLE => c_int::from(self.is_non_portable),
            SCHEDULING => self.scheduling,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    /// `cuFuncSetAttribute`, as an H200 takes values.
    pub(crate) fn set(
        &mut self,
        attribute: c_int,
        value: c_int,
        kernel: &Kernel,
        limits: &Limits,
    ) -> Outcome {
        let size = u64::try_from(value).map_err(|_| Code::INVALID_VALUE);
        match attribute {
            DYNAMIC_SHARED => {
                let most = limits.shared_bytes_optin.saturating_sub(kernel.shared_bytes);
                let size = size.ok().filter(|size| *size <= most).ok_or(Code::INVALID_VALUE)?;
                self.dynamic_shared = Some(size);
                Ok(())
            }
            CARVEOUT if (-1..=100).contains(&value) => {
                self.carveout = value;
                Ok(())
            }
            11..=13 => {
                size?;
                let index = CLUSTER.iter().position(|known| *known == attribute);
                let mut cluster = self.cluster.unwrap_or_default();
                if let Some(place) = index.and_then(|index| cluster.get_mut(index)) {
                    *place = value;
                }
                self.cluster = Some(cluster);
                Ok(())
            }
            NON_PORTABLE => {
                self.is_non_portable = value != 0;
                Ok(())
            }
            SCHEDULING if (0..=2).contains(&value) => {
                self.scheduling = value;
                Ok(())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// Registers of each thread of a kernel: those of its machine code, or as many as a launch of its
/// text takes.
pub(crate) fn registers(image: &Image, kernel: &Kernel) -> u32 {
    let of_text = || image.lowered().ok().and_then(|lowered| lowered.registers(kernel.name()));
    kernel.registers.or_else(of_text).unwrap_or(REGISTERS)
}
