//! Attributes of a stream that a program sets, but for its priority. The simulator notes them: nothing
//! here depends on the cache of a GPU, or on domains of memory.
//!
//! Source of the values and the checks: an H200 under driver 580 (CUDA 13.0).

use std::ffi::{c_int, c_void};

use pagewise_hal::Code;

use crate::driver::{load, store};
use crate::outcome::Outcome;

/// `CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW`
const ACCESS_POLICY_WINDOW: c_int = 1;
/// `CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY`
const SYNCHRONIZATION_POLICY: c_int = 3;
/// `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`
const DOMAIN_MAP: c_int = 9;
/// `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN`
const DOMAIN: c_int = 10;

/// The most bytes of a window: `CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE`.
const WINDOW_BYTES_MAX: usize = 128 << 20;
/// `CU_ACCESS_PROPERTY_PERSISTING`
const PERSISTING: c_int = 2;
/// Domains that a GPU has since Hopper.
const DOMAINS: u8 = 4;

/// `CUaccessPolicyWindow`: the memory that the L2 cache treats in a way of its own.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    base: usize,
    bytes: usize,
    hit_ratio: f32,
    hit_property: c_int,
    miss_property: c_int,
}

/// Attributes of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamAttributes {
    window: Window,
    policy: c_int,
    domain_map: [u8; 2],
    domain: c_int,
}

impl Default for StreamAttributes {
    fn default() -> Self {
        let window =
            Window { base: 0, bytes: 0, hit_ratio: 0.0, hit_property: 0, miss_property: 0 };
        Self { window, policy: -1, domain_map: [0, 1], domain: 0 }
    }
}

impl StreamAttributes {
    /// `cuStreamGetAttribute`
    ///
    /// # Safety
    /// `out` must be null or valid for writing the attribute's member of `CUlaunchAttributeValue`.
    pub(crate) unsafe fn get(&self, attribute: c_int, out: *mut c_void) -> Outcome {
        // SAFETY: by this function's contract the place takes the attribute's value.
        unsafe {
            match attribute {
                ACCESS_POLICY_WINDOW => store(out.cast(), self.window),
                SYNCHRONIZATION_POLICY => store(out.cast(), self.policy),
                DOMAIN_MAP => store(out.cast(), self.domain_map),
                DOMAIN => store(out.cast(), self.domain),
                _ => Err(Code::INVALID_VALUE),
            }
        }
    }

    /// `cuStreamSetAttribute`. A refused value changes nothing.
    ///
    /// # Safety
    /// `value` must be null or valid for reading the attribute's member of `CUlaunchAttributeValue`.
    pub(crate) unsafe fn set(&mut self, attribute: c_int, value: *const c_void) -> Outcome {
        let accept = |is_valid: bool| if is_valid { Ok(()) } else { Err(Code::INVALID_VALUE) };
        // SAFETY: by this function's contract the place holds the attribute's value. All bit patterns
        // are values of these types.
        unsafe {
            match attribute {
                ACCESS_POLICY_WINDOW => {
                    let window: Window = load(value.cast())?;
                    let is_outside = window.hit_ratio < 0.0 || window.hit_ratio > 1.0;
                    let is_too_large = window.bytes > WINDOW_BYTES_MAX;
                    accept(!is_outside && !is_too_large && window.miss_property != PERSISTING)?;
                    self.window = window;
                }
                SYNCHRONIZATION_POLICY => {
                    let policy: c_int = load(value.cast())?;
                    accept((1..=4).contains(&policy))?;
                    self.policy = policy;
                }
                DOMAIN_MAP => {
                    let map: [u8; 2] = load(value.cast())?;
                    accept(map.iter().all(|domain| *domain < DOMAINS))?;
                    self.domain_map = map;
                }
                DOMAIN => {
                    let domain: c_int = load(value.cast())?;
                    accept((0..=1).contains(&domain))?;
                    self.domain = domain;
                }
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        Ok(())
    }

    /// [`set`](Self::set) of a default stream, which keeps its policy of waiting.
    ///
    /// # Safety
    /// As for [`set`](Self::set).
    pub(crate) unsafe fn set_of_default(
        &mut self,
        attribute: c_int,
        value: *const c_void,
    ) -> Outcome {
        if attribute == SYNCHRONIZATION_POLICY {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by this function's contract, which is that of `set`.
        unsafe { self.set(attribute, value) }
    }
}
