//! Touch programs as kernels, in PTX that the driver compiles for whatever device it finds.
//!
//! One kernel per kind of access, each with and without a fence: every thread starts at the place
//! of its index and advances by the number of threads. With one thread and the fence, an access is
//! complete, system-wide, before the next is made. Sums are added up per block in shared memory,
//! so that one access per block goes to the result, which lies in host memory.
//!
//! Target: `sm_60` is the oldest device with concurrent managed access; drivers compile PTX of old
//! targets for every newer device.

#[cfg(test)]
use std::ffi::CStr;
use std::ffi::c_void;

use pagewise_hal::{DeviceAccess, Result};

use crate::abi::{Handle, handle};
use crate::context::Context;

/// Text of one kernel: the access at each place, and the fence after it.
macro_rules! kernel {
    ($name:literal, $access:literal, $fence:literal) => {
        concat!(
            ".visible .entry ",
            $name,
            "(
    .param .u64 address, .param .u64 places, .param .u64 stride,
    .param .u32 value, .param .u64 result)
{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .b64 %d<12>;
    .shared .align 8 .u64 total;
    ld.param.u64 %d1, [address];
    ld.param.u64 %d2, [places];
    ld.param.u64 %d3, [stride];
    ld.param.u32 %r5, [value];
    ld.param.u64 %d4, [result];
    cvta.to.global.u64 %d1, %d1;
    cvta.to.global.u64 %d4, %d4;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %nctaid.x;
    mul.wide.u32 %d5, %r1, %r2;
    cvt.u64.u32 %d6, %r3;
    add.u64 %d5, %d5, %d6;
    mul.wide.u32 %d6, %r2, %r4;
    mul.lo.u64 %d7, %d5, %d3;
    add.u64 %d1, %d1, %d7;
    mul.lo.u64 %d7, %d6, %d3;
    mov.u64 %d8, 0;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra START;
    st.shared.u64 [total], %d8;
START:
    bar.sync 0;
    setp.ge.u64 %p2, %d5, %d2;
    @%p2 bra DONE;
NEXT:
",
            $access,
            $fence,
            "    add.u64 %d1, %d1, %d7;
    add.u64 %d5, %d5, %d6;
    setp.lt.u64 %p2, %d5, %d2;
    @%p2 bra NEXT;
DONE:
    setp.eq.u64 %p3, %d8, 0;
    @%p3 bra ADDED;
    red.shared.add.u64 [total], %d8;
ADDED:
    bar.sync 0;
    @%p1 bra END;
    ld.shared.u64 %d8, [total];
    setp.eq.u64 %p3, %d8, 0;
    @%p3 bra END;
    red.global.add.u64 [%d4], %d8;
END:
    ret;
}
"
        )
    };
}

macro_rules! kernels {
    ($($access:literal => $plain:literal, $fenced:literal;)*) => {
        /// All kernels, NUL-terminated.
        const PTX: &str = concat!(
            ".version 6.0\n.target sm_60\n.address_size 64\n",
            $(kernel!($plain, $access, ""),)*
            $(kernel!($fenced, $access, "    membar.sys;\n"),)*
            "\0"
        );

        /// Names of the kernels without fence, then of those with it.
        const NAMES: &[&str] = &[$(concat!($plain, "\0"),)* $(concat!($fenced, "\0"),)*];
    };
}

// An atomic without a result to wait for, which a kernel's `atomicAdd` compiles to.
kernels! {
    "    ld.volatile.global.u8 %r6, [%d1];\n    cvt.u64.u32 %d9, %r6;\n    add.u64 %d8, %d8, %d9;\n"
        => "pagewise_read", "pagewise_read_fenced";
    "    st.volatile.global.u8 [%d1], %r5;\n" => "pagewise_write", "pagewise_write_fenced";
    "    and.b64 %d9, %d1, -4;\n    red.global.add.u32 [%d9], 1;\n"
        => "pagewise_add", "pagewise_add_fenced";
}

/// Kinds of access.
const KINDS: usize = NAMES.len() / 2;

/// The kernels, loaded into one context.
#[derive(Debug)]
pub(crate) struct Kernels {
    module: usize,
    functions: [usize; 2 * KINDS],
}

/// The arguments of a kernel. Addresses and lengths in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) access: DeviceAccess,
    pub(crate) fenced: bool,
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    /// The first place.
    pub(crate) address: u64,
    pub(crate) places: u64,
    pub(crate) stride_bytes: u64,
    /// Where the sum is added, 8 bytes that the device reaches.
    pub(crate) result: u64,
}

impl Kernels {
    /// Compiles the kernels for the context's device.
    pub(crate) fn load(context: &Context) -> Result<Self> {
        let table = context.table();
        let mut module = std::ptr::null_mut();
        context
            // SAFETY: the driver reads `PTX` up to its NUL, and writes the module to a local that
            // outlives the call.
            .call("load touch kernels", || unsafe {
                (table.module_load_data)(&raw mut module, PTX.as_ptr().cast())
            })
            .map_err(|error| {
                error.with_detail("the driver could not compile the touch kernels for this device")
            })?;
        let mut kernels = Self { module: module as usize, functions: [0; 2 * KINDS] };
        for (slot, name) in kernels.functions.iter_mut().zip(NAMES) {
            let mut function = std::ptr::null_mut();
            // SAFETY: the module is loaded, the driver reads `name` up to its NUL, and writes the
            // function to a local that outlives the call.
            let found = context.call("load touch kernels", || unsafe {
                (table.module_get_function)(&raw mut function, module, name.as_ptr().cast())
            });
            if let Err(error) = found {
                kernels.unload(context);
                return Err(error);
            }
            *slot = function as usize;
        }
        Ok(kernels)
    }

    /// Gives the kernels back. A failure means that the context is gone, and they with it.
    pub(crate) fn unload(self, context: &Context) {
        let table = context.table();
        // SAFETY: `load` loaded the module into this context, and this drop unloads it once. No
        // kernel of it runs, because a touch waits for its kernel.
        _ = context.number("unload touch kernels", || unsafe {
            (table.module_unload)(handle(self.module as u64))
        });
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// Every place and the result must be memory that the context's device reaches and that
    /// no other code or work uses until the stream has passed the kernel.
    pub(crate) unsafe fn launch(
        &self,
        context: &Context,
        stream: Handle,
        launch: Launch,
    ) -> Result<()> {
        let Launch { fenced, blocks, threads, mut address, mut places, .. } = launch;
        let (mut stride, mut result) = (launch.stride_bytes, launch.result);
        let (kind, mut value) = match launch.access {
            DeviceAccess::Read => (0, 0),
            DeviceAccess::Write(value) => (1, u32::from(value)),
            DeviceAccess::AtomicAdd => (2, 0),
        };
        let function = handle(self.functions[kind + if fenced { KINDS } else { 0 }] as u64);
        let mut parameters: [*mut c_void; 5] = [
            (&raw mut address).cast(),
            (&raw mut places).cast(),
            (&raw mut stride).cast(),
            (&raw mut value).cast(),
            (&raw mut result).cast(),
        ];
        let table = context.table();
        let none = std::ptr::null_mut();
        // SAFETY: the parameters have the types that the kernels declare, and the driver copies
        // them during the call. The caller promised that the kernel may access what it touches.
        context.call("device_touch", || unsafe {
            (table.launch_kernel)(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                parameters.as_mut_ptr(),
                none,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_terminated_and_declares_every_kernel_once() {
        let text = CStr::from_bytes_with_nul(PTX.as_bytes()).expect("one NUL, at the end");
        let text = text.to_str().expect("ASCII");
        for name in NAMES {
            let declared = format!(".entry {}(", name.trim_end_matches('\0'));
            assert_eq!(text.matches(&declared).count(), 1, "{declared}");
        }
        assert_eq!(text.matches("membar.sys").count(), KINDS);
    }
}
