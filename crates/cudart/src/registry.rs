//! The device code of a program: images, and the functions and variables in them.
//!
//! Code from nvcc registers all images, functions and variables before `main`. An image is loaded
//! into the driver when a program first uses one of its functions or variables.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::driver::cu;
use crate::outcome::{Error, Outcome};
use crate::types::Handle;

/// A device function that code from nvcc calls by the address of a function of the host.
#[derive(Debug)]
pub(crate) struct Function {
    image: usize,
    name: CString,
}

/// A device variable that programs name by the address of a variable of the host.
#[derive(Debug)]
struct Variable {
    image: usize,
    name: CString,
    managed: bool,
}

/// A fat binary.
#[derive(Debug)]
struct Image {
    /// The address of its data, which belongs to the program's file.
    data: usize,
    /// The driver's library, once it was loaded, or why it could not be.
    library: Option<Outcome<usize>>,
}

/// All that is registered. Keys are addresses of the program.
#[derive(Debug, Default)]
struct Registry {
    images: HashMap<usize, Image>,
    functions: HashMap<usize, &'static Function>,
    /// The same functions by what `__cudaGetKernel` gives out.
    handles: HashMap<usize, &'static Function>,
    variables: HashMap<usize, Variable>,
    /// The driver's kernels by their functions, and those that programs hold.
    kernels: HashMap<usize, usize>,
    held: HashSet<usize>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

/// The start of what nvcc lays around a fat binary.
#[repr(C)]
struct Wrapper {
    magic: c_int,
    version: c_int,
    data: *const c_void,
    _linked: *const c_void,
}

const WRAPPER_MAGIC: c_int = 0x4662_43b1;
/// The version around one fat binary. A later one has the objects that a program was linked of beside
/// it, which the driver asks for.
const WRAPPER_OF_ONE: c_int = 1;

impl Wrapper {
    /// The fat binary, if the driver needs no more of the wrapper.
    fn image(&self) -> Option<*const c_void> {
        let is_of_one = (self.magic, self.version) == (WRAPPER_MAGIC, WRAPPER_OF_ONE);
        is_of_one.then_some(self.data)
    }
}

/// Adds an image, and returns its handle.
///
/// # Safety
/// The address is of a wrapper from nvcc, or of a fat binary.
pub(crate) unsafe fn add_image(wrapper: *const c_void) -> *const c_void {
    // SAFETY: the caller promises a wrapper, or a fat binary, which is not smaller.
    let found = unsafe { wrapper.cast::<Wrapper>().read_unaligned() };
    let data = found.image().unwrap_or(wrapper);
    // An address of its own, which nothing else has as long as the program runs.
    let handle: &'static u8 = Box::leak(Box::new(0));
    let handle = &raw const *handle;
    lock().images.insert(handle as usize, Image { data: data as usize, library: None });
    handle.cast()
}

/// Removes an image with its functions and variables, and unloads it.
pub(crate) fn remove_image(handle: *const c_void) {
    let mut registry = lock();
    let key = handle as usize;
    let Some(image) = registry.images.remove(&key) else { return };
    registry.variables.retain(|_, variable| variable.image != key);
    let gone: Vec<usize> = registry
        .functions
        .values()
        .filter(|function| function.image == key)
        .map(|function| address_of(function))
        .collect();
    for function in gone {
        registry.kernels.remove(&function);
        registry.handles.remove(&function);
    }
    registry.functions.retain(|_, function| function.image != key);
    drop(registry);
    if let Some(Ok(library)) = image.library {
        // The program ends, or a plug-in is closed: no caller waits for the result.
        // SAFETY: the library is the driver's own, and this was its last use.
        let _ended = unsafe { cu!("cuLibraryUnload" @ 12000, library as Handle) };
    }
}

/// Adds a function of an image.
pub(crate) fn add_function(image: *const c_void, host: *const c_void, name: &CStr) {
    // Code from nvcc keeps the address for as long as the program runs.
    let function: &'static Function =
        Box::leak(Box::new(Function { image: image as usize, name: name.to_owned() }));
    let mut registry = lock();
    registry.functions.insert(host as usize, function);
    registry.handles.insert(address_of(function), function);
}

/// Adds a variable of an image. The host's variable is a pointer if the device's is managed.
pub(crate) fn add_variable(image: *const c_void, host: *const c_void, name: &CStr, managed: bool) {
    let variable = Variable { image: image as usize, name: name.to_owned(), managed };
    lock().variables.insert(host as usize, variable);
}

/// Loads an image, and gives its managed variables their addresses.
pub(crate) fn load(image: *const c_void) -> Outcome {
    lock().library(image as usize).map(drop)
}

/// The function that a host function stands for.
pub(crate) fn function(host: *const c_void) -> Option<&'static Function> {
    lock().functions.get(&(host as usize)).copied()
}

/// The driver's kernel for a host function, for what `__cudaGetKernel` gave out, or for a kernel
/// that the program holds.
///
/// # Errors
/// `INVALID_DEVICE_FUNCTION` for null, `INVALID_RESOURCE_HANDLE` for other addresses; the driver's
/// error if the image cannot be loaded.
pub(crate) fn kernel(function: *const c_void) -> Outcome<Handle> {
    if function.is_null() {
        return Err(Error::INVALID_DEVICE_FUNCTION);
    }
    let mut registry = lock();
    let key = function as usize;
    if registry.held.contains(&key) {
        return Ok(function.cast_mut());
    }
    let found = registry.functions.get(&key).or_else(|| registry.handles.get(&key)).copied();
    registry.kernel(found.ok_or(Error::INVALID_RESOURCE_HANDLE)?)
}

/// Whether an address is a kernel of the driver's that the program holds.
pub(crate) fn is_held(function: *const c_void) -> bool {
    lock().held.contains(&(function as usize))
}

/// The host function of a kernel of the driver.
pub(crate) fn host_function(kernel: Handle) -> Option<*mut c_void> {
    let registry = lock();
    let function = registry.kernels.iter().find(|(_, known)| **known == kernel as usize);
    let host = function.and_then(|(function, _)| {
        registry.functions.iter().find(|(_, known)| address_of(known) == *function)
    });
    host.map(|(host, _)| *host as *mut c_void)
}

/// Remembers a kernel of the driver that the program holds, so that it can be launched.
pub(crate) fn hold(kernel: Handle) {
    lock().held.insert(kernel as usize);
}

/// The address and the size in bytes of the device variable that a host variable stands for.
///
/// # Errors
/// `INVALID_SYMBOL` for other addresses; the driver's error if the image cannot be loaded.
pub(crate) fn variable(host: *const c_void) -> Outcome<(*mut c_void, usize)> {
    lock().variable(host as usize)
}

/// The value that `__cudaGetKernel` gives out for a function.
pub(crate) fn address_of(function: &'static Function) -> usize {
    (&raw const *function) as usize
}

impl Registry {
    fn kernel(&mut self, function: &'static Function) -> Outcome<Handle> {
        if let Some(kernel) = self.kernels.get(&address_of(function)) {
            return Ok(*kernel as Handle);
        }
        let library = self.library(function.image)?;
        let mut kernel: Handle = null_mut();
        let name = function.name.as_ptr();
        // SAFETY: the place is writable, the library is the driver's own, the name is a C string.
        match unsafe { cu!("cuLibraryGetKernel" @ 12000, &raw mut kernel, library, name) } {
            Err(Error::SYMBOL_NOT_FOUND) => return Err(Error::INVALID_DEVICE_FUNCTION),
            result => result?,
        }
        self.kernels.insert(address_of(function), kernel as usize);
        Ok(kernel)
    }

    fn variable(&mut self, host: usize) -> Outcome<(*mut c_void, usize)> {
        let managed = |(place, variable): (&usize, &Variable)| {
            // SAFETY: code from nvcc registered the address of a pointer.
            variable.managed && unsafe { *(*place as *const usize) } == host
        };
        // A managed variable is named by its own address, which the host's pointer holds.
        let by_value = || self.variables.iter().find(|entry| managed(*entry)).map(|(_, it)| it);
        let found = self.variables.get(&host).or_else(by_value).ok_or(Error::INVALID_SYMBOL)?;
        let (image, name, managed) = (found.image, found.name.clone(), found.managed);
        let library = self.library(image)?;
        address_in(library, &name, managed)
    }

    /// The driver's library of an image, which is loaded at the first call.
    fn library(&mut self, key: usize) -> Outcome<Handle> {
        let image = self.images.get_mut(&key).ok_or(Error::INVALID_RESOURCE_HANDLE)?;
        if let Some(known) = image.library {
            return known.map(|library| library as Handle);
        }
        let mut library: Handle = null_mut();
        let (data, none) = (image.data as *const c_void, null::<c_void>());
        // SAFETY: the program registered the data as a fat binary; there are no options.
        let loaded = unsafe {
            cu!("cuLibraryLoadData" @ 12000, &raw mut library, data, none, none, 0_u32, none, none, 0_u32)
        };
        image.library = Some(loaded.map(|()| library as usize));
        loaded?;
        for (place, variable) in &self.variables {
            if variable.image == key && variable.managed {
                let (address, _) = address_in(library, &variable.name, true)?;
                // SAFETY: code from nvcc registered the address of a pointer.
                unsafe { *(*place as *mut *mut c_void) = address };
            }
        }
        Ok(library)
    }
}

fn address_in(library: Handle, name: &CStr, managed: bool) -> Outcome<(*mut c_void, usize)> {
    let (mut address, mut bytes): (*mut c_void, usize) = (null_mut(), 0);
    let (to, size, name) = (&raw mut address, &raw mut bytes, name.as_ptr());
    // SAFETY: the places are writable, the library is the driver's own, the name is a C string.
    let found = unsafe {
        if managed {
            cu!("cuLibraryGetManaged" @ 12000, to, size, library, name)
        } else {
            cu!("cuLibraryGetGlobal" @ 12000, to, size, library, name)
        }
    };
    match found {
        Err(Error::SYMBOL_NOT_FOUND) => Err(Error::INVALID_SYMBOL),
        result => result.map(|()| (address, bytes)),
    }
}

fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
