//! A place for the driver of this process, which a child of `fork` does not share.
//!
//! A child has a copy of its parent's memory with one thread, so a lock of the parent may be held
//! there for ever. So each process has a place of its own, and finds it without a lock.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, RwLock};

/// The place for a value of one process.
#[derive(Debug)]
pub(crate) struct Place<T> {
    process: u32,
    /// Whether the process has used the value: then its children have none.
    used: AtomicBool,
    pub(crate) value: RwLock<Option<Arc<T>>>,
}

impl<T> Place<T> {
    /// From now on children of this process have no value.
    pub(crate) fn is_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }
}

/// This process is a child of one that used its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inherited;

/// A value for each process.
#[derive(Debug)]
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Place<T>>);

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The place of the latest process that has one.
    fn latest(&self) -> Option<&'static Place<T>> {
        // SAFETY: the pointer is null or that of a leaked box, which is valid for ever and is
        // only shared.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The place of this process, if it has one.
    pub(crate) fn own(&self) -> Option<&'static Place<T>> {
        self.latest().filter(|place| place.process == std::process::id())
    }

    /// The place of this process, made if it has none.
    ///
    /// # Errors
    /// If the process that it is a child of used its value.
    pub(crate) fn place(&self) -> Result<&'static Place<T>, Inherited> {
        match self.latest() {
            Some(place) if place.process == std::process::id() => Ok(place),
            Some(parent) if parent.used.load(Ordering::Relaxed) => Err(Inherited),
            _ => Ok(self.fresh()),
        }
    }

    /// The place of this process, made if it has none, whatever its parent did.
    pub(crate) fn fresh(&self) -> &'static Place<T> {
        loop {
            let latest = self.0.load(Ordering::Acquire);
            if let Some(place) = self.own() {
                return place;
            }
            let (process, used) = (std::process::id(), AtomicBool::new(false));
            let place = Box::into_raw(Box::new(Place { process, used, value: RwLock::new(None) }));
            let put = self.0.compare_exchange(latest, place, Ordering::AcqRel, Ordering::Acquire);
            if put.is_err() {
                // SAFETY: `place` is the box that was just leaked, and no other thread got it.
                drop(unsafe { Box::from_raw(place) });
            }
        }
    }
}
