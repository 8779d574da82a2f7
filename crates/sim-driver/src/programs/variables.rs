//! Makes and frees the memory of variables.

use pagewise_hal::{AttachFlags, Backend, DeviceId, DevicePtr, Span, StreamHandle};

use super::storage::Storage;
use crate::driver::{Driver, Outcome, answer};
use crate::image::Image;
use crate::image::parts::{Space, Variable};
use crate::transfer::{Rows, Shape, copy};
use crate::work::Use;

/// Whether a variable has memory outside of kernels. One that no module defines has memory of
/// zeros, as on an H200: a link refuses it, a load does not.
fn has_memory(variable: &Variable) -> bool {
    variable.space != Space::Shared && variable.bytes > 0
}

/// Makes the managed variables of a library, which all its modules share.
pub(crate) fn of_library(driver: &Driver, image: &Image) -> Outcome<Storage> {
    make(driver, image, StreamHandle::LEGACY, |_, variable| match variable.is_managed {
        true => managed(driver, variable).map(|made| (Some(made), true)),
        false => Ok((None, false)),
    })
}

/// Makes the memory of a module's variables on a device, with their first values. The managed
/// variables of a library are passed, and keep their values.
pub(crate) fn of_module(
    driver: &Driver,
    device: DeviceId,
    image: &Image,
    of_library: Option<&Storage>,
) -> Outcome<Storage> {
    let on = driver.working(StreamHandle::LEGACY, device)?;
    make(driver, image, on, |index, variable| {
        if !variable.is_managed {
            let made = answer(driver.sim.alloc_device(device, variable.bytes))?;
            let span = Span::new(made, variable.bytes);
            // SAFETY: `memset` asks that no other code uses the range, which is new.
            let cleared = answer(unsafe { driver.sim.memset(span, 0, on) });
            cleared.inspect_err(|_| free(driver, [made.0]))?;
            return Ok((Some(made.0), true));
        }
        match of_library {
            Some(library) => Ok((library.address(index), false)),
            None => managed(driver, variable).map(|made| (Some(made), true)),
        }
    })
}

/// Managed memory for a variable. New managed memory is 0.
fn managed(driver: &Driver, variable: &Variable) -> Outcome<u64> {
    Ok(answer(driver.sim.alloc_managed(variable.bytes, AttachFlags::GLOBAL))?.0)
}

/// Makes variables, in the order of the image, and gives those that are new their first values.
/// `memory` gives the memory of one, and whether it is new. A failure leaves nothing behind.
fn make(
    driver: &Driver,
    image: &Image,
    on: StreamHandle,
    memory: impl Fn(usize, &Variable) -> Outcome<(Option<u64>, bool)>,
) -> Outcome<Storage> {
    let mut storage = Storage::default();
    let mut is_new = Vec::with_capacity(image.variables.len());
    let mut outcome = Ok(());
    for (index, variable) in image.variables.iter().enumerate() {
        match if has_memory(variable) { memory(index, variable) } else { Ok((None, false)) } {
            Ok((address, new)) => {
                storage.push(address, new);
                is_new.push(new);
            }
            Err(code) => {
                outcome = Err(code);
                break;
            }
        }
    }
    let outcome = outcome.and_then(|()| fill(driver, image, &storage, &is_new, on));
    if outcome.is_err() {
        free(driver, storage.to_free());
    }
    outcome.map(|()| storage)
}

/// Gives new variables their first values.
fn fill(
    driver: &Driver,
    image: &Image,
    storage: &Storage,
    is_new: &[bool],
    on: StreamHandle,
) -> Outcome {
    for (index, (variable, is_new)) in image.variables.iter().zip(is_new).enumerate() {
        let Some(address) = storage.address(index).filter(|_| *is_new) else { continue };
        let contents = storage.contents(image, variable);
        let bytes = contents.len() as u64;
        if bytes == 0 {
            continue;
        }
        let shape = Shape { width: bytes, rows: 1 };
        let from = (contents.as_ptr().expose_provenance() as u64, bytes);
        let from = Rows::new(driver, from, shape, Use::Promised)?;
        let to = Rows::new(driver, (address, bytes), shape, Use::Promised)?;
        // SAFETY: `copy` asks that no other code uses the rows. The variable is new, and the contents
        // are a local of this function.
        unsafe { copy(driver, to, from, shape, on) }?;
    }
    Ok(())
}

/// Frees memory of variables.
pub(crate) fn free(driver: &Driver, memory: impl IntoIterator<Item = u64>) {
    for ptr in memory {
        // SAFETY: `free` asks that no code uses the memory any more: the program unloaded the module
        // or library that it belonged to, or destroyed the context.
        _ = unsafe { driver.sim.free(DevicePtr(ptr)) };
    }
}
