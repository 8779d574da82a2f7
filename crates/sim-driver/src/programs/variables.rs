//! Makes and frees the memory of variables.

use pagewise_hal::{AttachFlags, Backend, DeviceId, DevicePtr, Span, StreamHandle};

use super::storage::{Layout, Storage};
use crate::driver::{Driver, Outcome, answer};
use crate::image::Image;
use crate::transfer::{Rows, Shape, copy};
use crate::work::Use;

/// Managed memory for variables, if there are any. New managed memory is 0.
fn managed_memory(driver: &Driver, layout: &Layout) -> Outcome<Option<u64>> {
    if layout.bytes == 0 {
        return Ok(None);
    }
    let made = answer(driver.sim.alloc_managed(layout.bytes, AttachFlags::GLOBAL))?;
    Ok(Some(made.0))
}

/// Device memory for variables, if there are any.
fn device_memory(driver: &Driver, device: DeviceId, layout: &Layout) -> Outcome<Option<u64>> {
    if layout.bytes == 0 {
        return Ok(None);
    }
    Ok(Some(answer(driver.sim.alloc_device(device, layout.bytes))?.0))
}

/// Makes the managed memory of a library, which all its modules share.
pub(crate) fn of_library(driver: &Driver, image: &Image) -> Outcome<Option<u64>> {
    let (own, managed) = (Layout::new(image, false)?, Layout::new(image, true)?);
    let memory = managed_memory(driver, &managed)?;
    let storage = Storage::new((None, &own), (memory, &managed), true);
    let outcome = fill(driver, image, &storage, StreamHandle::LEGACY);
    if outcome.is_err() {
        free(driver, storage.to_free());
    }
    outcome.map(|()| memory)
}

/// Makes the memory of a module's variables on a device, with what they begin with. The managed
/// memory of a library is passed, and keeps what is in it.
pub(crate) fn of_module(
    driver: &Driver,
    device: DeviceId,
    image: &Image,
    of_library: Option<Option<u64>>,
) -> Outcome<Storage> {
    let (own, managed) = (Layout::new(image, false)?, Layout::new(image, true)?);
    let shared = match of_library {
        None => managed_memory(driver, &managed)?,
        Some(known) => known,
    };
    let owns_managed = of_library.is_none();
    let memory = device_memory(driver, device, &own).inspect_err(|_| {
        free(driver, shared.filter(|_| owns_managed));
    })?;
    let storage = Storage::new((memory, &own), (shared, &managed), owns_managed);
    let on = driver.working(StreamHandle::LEGACY, device);
    let outcome = on.and_then(|on| {
        if let Some(own_memory) = storage.own() {
            let span = Span::new(DevicePtr(own_memory), own.bytes);
            // SAFETY: `memset` asks that no other code uses the range, which is new.
            answer(unsafe { driver.sim.memset(span, 0, on) })?;
        }
        fill(driver, image, &storage, on)
    });
    if outcome.is_err() {
        free(driver, storage.to_free());
    }
    outcome.map(|()| storage)
}

/// Gives variables what they begin with.
fn fill(driver: &Driver, image: &Image, storage: &Storage, on: StreamHandle) -> Outcome {
    for (index, variable) in image.variables.iter().enumerate() {
        let Some(address) = storage.address_to_fill(index, variable) else { continue };
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
