//! Programs that are linked of several modules of PTX.
//!
//! The result is the text of one module, which loads as any image does. Machine code is not linked.

use std::ffi::c_int;
use std::fmt;

use pagewise_hal::Code;
use pagewise_ptx::link::{LinkError, Unit, link};

use crate::image::{Image, Machine, NO_BINARY_FOR_GPU, Refusal};

/// Writes errors to the logs of the program that began a link.
pub(crate) type Report = Box<dyn Fn(&str) + Send>;

/// The devices' runtime, as far as kernels can call it.
const DEVICE_RUNTIME: Unit<'_> =
    Unit { name: "libcudadevrt", text: include_str!("device_runtime.ptx") };

/// A link that is under way.
pub(crate) struct Link {
    report: Report,
    /// All errors so far.
    errors: String,
    /// The names and the texts of the modules.
    units: Vec<(String, Vec<u8>)>,
    /// The image, once it was asked for. It stays where it is until the link is destroyed.
    image: Option<Box<[u8]>>,
    /// The code of the link, once a module made it impossible.
    pub(crate) failed: Option<c_int>,
    /// Whether a module was refused on its own.
    pub(crate) refused: bool,
    /// Whether names that no module defines may be of the devices' runtime.
    has_device_runtime: bool,
}

/// `CUDA_ERROR_INVALID_SOURCE`: modules that do not fit together.
const INVALID_SOURCE: c_int = 300;

/// The program that nvcc linked of objects, linked of their text. Objects of machine code are left
/// out: nvcc adds its runtime for devices to each program, and calls of it are refused anyway. `None`
/// if no object has text for the machine, or if one needs an object that was left out.
pub(crate) fn of_objects(objects: &[&[u8]], machine: Machine) -> Option<Result<Image, Refusal>> {
    let mut texts = Vec::new();
    for object in objects {
        match Image::read(object, machine) {
            Ok(image) if !image.text.is_empty() => texts.push(image.text),
            Ok(_) => {}
            Err(refusal) if refusal.code == NO_BINARY_FOR_GPU => {}
            Err(refusal) => return Some(Err(refusal)),
        }
    }
    let is_whole = texts.len() == objects.len();
    let texts: Vec<_> = texts.iter().map(|text| String::from_utf8_lossy(text)).collect();
    let units: Vec<_> = texts.iter().map(|text| Unit { name: "<input>", text }).collect();
    let linked = match link(&units) {
        _ if units.is_empty() => return None,
        Err(LinkError::Undefined { .. }) if !is_whole => return None,
        linked => linked,
    };
    let refusal = |error| Refusal { code: INVALID_SOURCE, log: format!("error   : {error}") };
    let text = linked.map_err(refusal);
    Some(text.and_then(|text| Image::read(text.as_bytes(), machine)).and_then(Image::whole))
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.units.iter().map(|(name, _)| name)).finish()
    }
}

impl Link {
    /// A link that begins.
    pub(crate) fn new(report: Report) -> Self {
        Self {
            report,
            errors: String::new(),
            units: Vec::new(),
            image: None,
            failed: None,
            refused: false,
            has_device_runtime: false,
        }
    }

    /// Adds an archive of machine code. The device runtime's functions have text here; the names that
    /// another one defines stay undefined.
    pub(crate) fn add_archive(&mut self) {
        self.has_device_runtime = true;
    }

    /// Adds errors to the link's logs, which hold all of them.
    pub(crate) fn report(&mut self, errors: &str) {
        if !self.errors.is_empty() {
            self.errors.push('\n');
        }
        self.errors.push_str(errors);
        (self.report)(&self.errors);
    }

    /// Adds a module, which passed its checks. One that does not fit to those before makes the link
    /// impossible. A later module may define the names that are missing so far.
    pub(crate) fn add(&mut self, name: String, image: Image) {
        if self.failed.is_some() {
            return;
        }
        self.units.push((name, image.text));
        match self.linked() {
            Ok(_) | Err(LinkError::Undefined { .. }) => {}
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &LinkError) {
        self.report(&format!("error   : {error}"));
        self.failed = Some(if self.refused { Code::UNKNOWN } else { INVALID_SOURCE });
    }

    /// Links the modules. A link of nothing is an empty module for a device of this compute
    /// capability.
    ///
    /// # Errors
    /// If the modules do not fit together, and if they are linked already.
    pub(crate) fn complete(&mut self, capability: u32) -> Result<(), c_int> {
        if self.image.is_some() {
            return Err(Code::INVALID_HANDLE);
        }
        if self.failed.is_none() && self.units.is_empty() {
            let text = format!(".version 8.0\n.target sm_{capability}\n.address_size 64\n\0");
            self.image = Some(text.into_bytes().into_boxed_slice());
        } else if self.failed.is_none() {
            match self.linked() {
                Ok(text) => self.image = Some((text + "\0").into_bytes().into_boxed_slice()),
                Err(error) => self.fail(&error),
            }
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// The image of all modules, with a NUL at its end.
    pub(crate) fn image(&self) -> &[u8] {
        self.image.as_deref().unwrap_or_default()
    }

    fn linked(&self) -> Result<String, LinkError> {
        let texts = self.units.iter().map(|(_, text)| String::from_utf8_lossy(text));
        let texts: Vec<_> = texts.collect();
        let units = self.units.iter().zip(&texts);
        let mut units: Vec<_> = units.map(|((name, _), text)| Unit { name, text }).collect();
        match link(&units) {
            Err(LinkError::Undefined { .. }) if self.has_device_runtime => {
                units.push(DEVICE_RUNTIME);
                link(&units)
            }
            linked => linked,
        }
    }
}
