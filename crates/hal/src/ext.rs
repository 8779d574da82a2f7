//! Conveniences over [`Backend`], for every back end and wrapper alike.

use crate::{
    Advice, AttachFlags, Backend, DeviceId, ErrorKind, Location, LocationKind, Result, Span,
    StreamHandle,
};

/// Shorthands that need nothing but [`Backend`]. Implemented for every back end.
pub trait BackendExt: Backend {
    /// Allocates managed memory that every device may use.
    ///
    /// # Errors
    /// As [`Backend::alloc_managed`].
    fn alloc(&self, bytes: u64) -> Result<Span> {
        let ptr = self.alloc_managed(bytes, AttachFlags::GLOBAL)?;
        Ok(Span::new(ptr, bytes))
    }

    /// Prefetches to a location on the legacy default stream. It uses the location form of the
    /// call, or the ordinal form where the driver has no other and an ordinal can name the place.
    ///
    /// # Errors
    /// As [`Backend::prefetch`]; `Unsupported` for a host NUMA location without the location form.
    fn prefetch_to(&self, span: Span, location: Location) -> Result<()> {
        let stream = StreamHandle::NULL;
        match (self.prefetch(span, location, 0, stream), location.kind) {
            (Err(error), LocationKind::DEVICE) if error.kind() == ErrorKind::Unsupported => {
                self.prefetch_ordinal(span, location.id, stream)
            }
            (Err(error), LocationKind::HOST) if error.kind() == ErrorKind::Unsupported => {
                self.prefetch_ordinal(span, Location::ORDINAL_HOST, stream)
            }
            (answer, _) => answer,
        }
    }

    /// Sets or unsets read-mostly.
    ///
    /// # Errors
    /// As [`Backend::advise_ordinal`].
    fn set_read_mostly(&self, span: Span, on: bool) -> Result<()> {
        let advice = if on { Advice::SET_READ_MOSTLY } else { Advice::UNSET_READ_MOSTLY };
        self.advise_ordinal(span, advice, Location::ORDINAL_HOST)
    }

    /// All devices, in order.
    ///
    /// # Errors
    /// As [`Backend::device_count`].
    fn devices(&self) -> Result<Vec<DeviceId>> {
        Ok((0..self.device_count()?.cast_signed()).map(DeviceId).collect())
    }
}

impl<B: Backend + ?Sized> BackendExt for B {}
