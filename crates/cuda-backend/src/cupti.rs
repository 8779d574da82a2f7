//! Unified-memory records from CUPTI, NVIDIA's profiling library, found at run time.
//!
//! CUPTI does not come with the driver but with the toolkit, and in Python wheels. [`Cupti::open`]
//! looks at `PAGEWISE_CUPTI` (a file, or a directory that holds one) and nowhere else if that is
//! set; else where the dynamic loader looks (`LD_LIBRARY_PATH`), then below `/usr/local/cuda*`.
//! Without it everything but records works; [`CuptiUnavailable`] says why there is none.
//!
//! CUPTI knows one client in a process, and its callbacks carry no context: so what it delivers is
//! kept in one place for the whole process, and every [`Cupti`] sees that.
//!
//! Facts on names, numbers and layouts are from `cupti_activity.h` of the CUPTI wheels 12.0.146,
//! 12.8.90 and 13.5.25, and were tried on an H200 with CUPTI 13.0.

mod library;
mod record;
mod records;
mod unavailable;

use std::sync::{Mutex, OnceLock};

use pagewise_hal::{Error, ErrorKind, MemoryEvent, Result};

use crate::observe::Observer;
use library::Library;
use records::{RECORDS, locked};

pub use unavailable::CuptiUnavailable;

/// Counter kinds: copies between host and device, faults, thrashing, throttling, remote maps. CUPTI
/// 12.0 to 13.5 have the same.
const COUNTER_KINDS: std::ops::RangeInclusive<u32> = 1..=7;

/// The kind of copies between devices, which a system with one device may refuse.
const DEVICE_TO_DEVICE: u32 = 8;

/// Unified-memory records of this process.
///
/// ```no_run
/// use pagewise_cuda::{CudaBackend, Cupti};
/// use pagewise_hal::Backend;
///
/// let cuda = CudaBackend::builder().observer(Cupti::open()?).open()?;
/// Cupti::open()?.start()?; // The driver is initialised now; both are the same CUPTI.
/// // … work, and wait for it …
/// for event in cuda.take_events()? {
///     println!("{event:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cupti {
    library: &'static Library,
}

impl Cupti {
    /// Finds the library, once for the process, and registers with it. The driver need not be
    /// initialised.
    ///
    /// # Errors
    /// The reason why there are no records; the same every time.
    pub fn open() -> std::result::Result<Self, CuptiUnavailable> {
        static LIBRARY: OnceLock<std::result::Result<Library, CuptiUnavailable>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            let library = Library::find()?;
            library.register()?;
            Ok(library)
        });
        library.as_ref().map(|library| Self { library }).map_err(Clone::clone)
    }

    /// The file that was opened.
    #[must_use]
    pub fn path(&self) -> &str {
        self.library.path()
    }

    /// The API's version: CUPTI 12 counts (12.0 is 18), CUPTI 13 encodes (13.0 is 130000).
    #[must_use]
    pub fn version(&self) -> u32 {
        self.library.version()
    }

    /// Starts recording, if it is not started. The driver must be initialised (`cuInit`).
    ///
    /// No record is delivered before the process's first managed allocation, for pool memory
    /// neither (driver 580).
    ///
    /// # Errors
    /// Why the driver or the device delivers no records: no rights, a virtual GPU, MIG, ….
    pub fn start(&self) -> std::result::Result<(), CuptiUnavailable> {
        let mut started = locked(&STARTED);
        if !*started {
            COUNTER_KINDS.into_iter().try_for_each(|kind| self.library.configure(kind, true))?;
            _ = self.library.configure(DEVICE_TO_DEVICE, true);
            self.library.enable()?;
            *started = true;
        }
        Ok(())
    }

    /// Stops recording, if it is started. The records stay to be drained.
    ///
    /// # Errors
    /// If CUPTI refuses.
    pub fn stop(&self) -> std::result::Result<(), CuptiUnavailable> {
        let mut started = locked(&STARTED);
        if *started {
            self.library.flush()?;
            self.library.disable()?;
            COUNTER_KINDS.into_iter().try_for_each(|kind| self.library.configure(kind, false))?;
            _ = self.library.configure(DEVICE_TO_DEVICE, false);
            *started = false;
        }
        Ok(())
    }

    /// The records since the last call, in the order in which they were delivered, which is by
    /// kind rather than by time. Complete for work that has been waited for.
    ///
    /// # Errors
    /// `Driver` if records were lost, or are of a kind that this version does not know. The other
    /// records are lost too, so that no caller takes a part for the whole.
    pub fn drain(&self) -> Result<Vec<MemoryEvent>> {
        const OPERATION: &str = "take events";
        let failed = |reason: CuptiUnavailable| {
            Error::new(OPERATION, ErrorKind::Driver).with_detail(reason.to_string())
        };
        self.library.flush().map_err(failed)?;
        let dropped = self.library.dropped().map_err(failed)?;
        let mut records = locked(&RECORDS);
        let events = std::mem::take(&mut records.events);
        let unknown = records.unknown.take();
        drop(records);
        match (dropped, unknown) {
            (0, None) => Ok(events),
            (0, Some(counter)) => Err(Error::new(OPERATION, ErrorKind::Driver)
                .with_detail(format!("CUPTI delivered a record that is not known: {counter:?}"))),
            (dropped, _) => Err(Error::new(OPERATION, ErrorKind::Driver)
                .with_detail(format!("CUPTI dropped {dropped} records"))),
        }
    }
}

/// Whether recording is on. Its lock is never taken by a callback, which a call may wait for.
static STARTED: Mutex<bool> = Mutex::new(false);

impl Observer for Cupti {
    fn take_events(&self) -> Result<Vec<MemoryEvent>> {
        self.drain()
    }
}
