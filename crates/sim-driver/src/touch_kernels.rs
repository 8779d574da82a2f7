//! The touch kernels of `pagewise-cuda`, by name and parameters: what they do is known, so
//! launching one is an access program.

use pagewise_hal::{
    Backend, Code, DeviceAccess, DevicePtr, DeviceTouch, HostAddresses, Span, StreamHandle,
};
use pagewise_sim::Submission;

use crate::driver::{Driver, Outcome, answer};
use crate::entry::span_is_live;
use crate::image::parts::Kernel;
use crate::launch::{Executor, Launch, Ready};

/// Names of the touch kernels, and what each does at a place; the value comes at launch.
const NAMES: [(&str, DeviceAccess); 6] = [
    ("pagewise_read", DeviceAccess::Read),
    ("pagewise_write", DeviceAccess::Write(0)),
    ("pagewise_add", DeviceAccess::AtomicAdd),
    ("pagewise_read_fenced", DeviceAccess::Read),
    ("pagewise_write_fenced", DeviceAccess::Write(0)),
    ("pagewise_add_fenced", DeviceAccess::AtomicAdd),
];

/// Offsets and sizes of their parameters: address, places, stride, value, result.
const PARAMETERS: [(u64, u64); 5] = [(0, 8), (8, 8), (16, 8), (24, 4), (32, 8)];

/// Executes one touch kernel.
#[derive(Debug)]
pub(crate) struct TouchKernel(DeviceAccess);

impl TouchKernel {
    /// The touch kernel that a kernel is, if it is one.
    pub(crate) fn of(kernel: &Kernel) -> Option<Self> {
        let (_, access) = NAMES.iter().find(|(name, _)| *name == kernel.name())?;
        let parameters = kernel.parameters.iter().map(|one| (one.offset, one.bytes));
        parameters.eq(PARAMETERS).then_some(Self(*access))
    }
}

/// The parameters of a launch of a touch kernel.
struct Parameters {
    address: u64,
    places: u64,
    stride: u64,
    value: u64,
    /// The 8 bytes that the sum of a read is added to.
    result: u64,
}

impl Parameters {
    fn of(launch: &Launch) -> Outcome<Self> {
        let number = |index: usize| -> Outcome<u64> {
            let &(offset, bytes) = PARAMETERS.get(index).ok_or(Code::INVALID_VALUE)?;
            let end = offset.saturating_add(bytes) as usize;
            let bytes = launch.parameters.get(offset as usize..end).ok_or(Code::INVALID_VALUE)?;
            Ok(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
        };
        let (address, places, stride) = (number(0)?, number(1)?, number(2)?);
        Ok(Self { address, places, stride, value: number(3)?, result: number(4)? })
    }
}

impl TouchKernel {
    /// The access program of a launch, and the place of its sum. A launch without places has none.
    fn touch(&self, driver: &Driver, launch: &Launch) -> Outcome<Option<(DeviceTouch, u64)>> {
        let (shape, access) = (launch.request.shape, self.0);
        let flat = [shape.grid[1], shape.grid[2], shape.block[1], shape.block[2]] == [1; 4];
        if !flat {
            return Err(Code::INVALID_VALUE);
        }
        let Parameters { address, places, stride, value, result } = Parameters::of(launch)?;
        if places == 0 {
            return Ok(None);
        }
        // The sum is added to the result's place, which has to be there before anything moves.
        if matches!(access, DeviceAccess::Read) {
            check_result(driver, result)?;
        }
        let touch = DeviceTouch {
            device: launch.device,
            span: touched(address, places, stride, access).ok_or(Code::ILLEGAL_ADDRESS)?,
            stride_bytes: stride,
            access: match access {
                DeviceAccess::Write(_) => DeviceAccess::Write(value as u8),
                other => other,
            },
            blocks: shape.grid[0],
            threads: shape.block[0],
        };
        Ok(Some((touch, result)))
    }

    /// The same, if the simulator would not refuse it.
    fn checked(
        &self,
        driver: &Driver,
        launch: &Launch,
        on: StreamHandle,
    ) -> Outcome<Option<(DeviceTouch, u64)>> {
        let touch = self.touch(driver, launch)?;
        if let Some((touch, _)) = touch {
            answer(driver.machine.simulator.check_submission(&Submission::Touch(touch), on))?;
        }
        Ok(touch)
    }
}

impl Executor for TouchKernel {
    fn check(&self, driver: &Driver, launch: &Launch, on: StreamHandle) -> Outcome {
        self.checked(driver, launch, on).map(drop)
    }

    fn ready(&self, driver: &Driver, launch: &Launch, on: StreamHandle) -> Outcome<Ready> {
        let touch = self.checked(driver, launch, on)?;
        Ok(Box::new(move |driver| {
            let Some((touch, result)) = touch else { return Ok(None) };
            // SAFETY: `device_touch` asks that no other code uses the range; the caller that
            // launched the kernel promised that. The simulator refuses ranges outside of live
            // allocations.
            let sum = answer(unsafe { driver.sim.device_touch(touch, on) })?;
            if sum != 0 {
                add(driver, result, sum)?;
            }
            Ok(None)
        }))
    }
}

/// The bytes that a kernel touches: up to its last place, and of an atomic the whole word there.
/// `None` if there is no place, if they pass the end of the address space, or if that word holds
/// places after the last.
fn touched(address: u64, places: u64, stride: u64, access: DeviceAccess) -> Option<Span> {
    let last = address.checked_add(places.checked_sub(1)?.checked_mul(stride)?)?;
    let end = match access {
        DeviceAccess::AtomicAdd => (last & !3).checked_add(4)?,
        _ => last.checked_add(1)?,
    };
    let bytes = end.checked_sub(address)?;
    (stride == 0 || bytes.div_ceil(stride) == places)
        .then_some(Span::new(DevicePtr(address), bytes))
}

/// Whether 8 aligned bytes of a live allocation are there.
fn check_result(driver: &Driver, address: u64) -> Outcome {
    let is_there = address.is_multiple_of(8) && span_is_live(driver, address, 8);
    if is_there { Ok(()) } else { Err(Code::ILLEGAL_ADDRESS) }
}

/// Adds to 8 bytes of simulated memory, which is memory of this process.
fn add(driver: &Driver, address: u64, sum: u64) -> Outcome {
    check_result(driver, address)?;
    // The host may have no access to the memory, which a kernel needs none of.
    let place = driver.machine.simulator.kernel_address(DevicePtr(address)).0;
    let place = std::ptr::with_exposed_provenance_mut::<u64>(place as usize);
    // SAFETY: `place` is 8 aligned bytes of a live allocation, at the address by which a simulated
    // device reaches them, which is mapped for reading and writing. The caller that launched the
    // kernel promised that no other code uses the place, nor frees it, until the kernel has run.
    unsafe { place.write_volatile(place.read_volatile().wrapping_add(sum)) };
    Ok(())
}
