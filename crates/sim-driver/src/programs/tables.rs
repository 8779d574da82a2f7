//! The tables of modules, libraries, functions and kernels, by handle.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::Arc;

use pagewise_hal::Code;

use super::links::Link;
use super::settings::Settings;
use super::storage::Storage;
use crate::image::parts::Kernel;
use crate::image::{Image, Refusal};
use crate::outcome::Outcome;

/// A module in a context.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: usize,
    pub(crate) image: Arc<Image>,
    pub(crate) storage: Storage,
    /// The library that it was made of.
    pub(crate) library: Option<usize>,
    /// Handles of functions that were asked for, by index of the kernel.
    functions: BTreeMap<usize, usize>,
}

/// A library. The driver reads an image when it is first used, and then says what is wrong with it.
#[derive(Debug)]
pub(crate) struct Library {
    image: Result<Arc<Image>, Refusal>,
    /// Its managed variables, which all its modules share.
    pub(crate) managed: Option<Storage>,
    /// Handles of all kernels, in the order of the image.
    kernels: Vec<usize>,
    /// Its modules, by context.
    modules: BTreeMap<usize, usize>,
}

impl Library {
    /// The image, or the code that says what is wrong with it.
    pub(crate) fn image(&self) -> Outcome<&Arc<Image>> {
        self.image.as_ref().map_err(|refusal| refusal.code)
    }

    pub(crate) fn kernels(&self) -> Outcome<&[usize]> {
        self.image().map(|_| self.kernels.as_slice())
    }
}

/// A function of a module, or a kernel of a library.
#[derive(Debug, Clone, Copy)]
struct Member {
    /// The module or library.
    of: usize,
    /// The index of the kernel in the image.
    index: usize,
}

/// A kernel with what belongs to it.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) image: Arc<Image>,
    index: usize,
    /// The module; for a kernel of a library, the library.
    pub(crate) of: usize,
    pub(crate) settings: Settings,
    /// The context of the module; none for a kernel of a library.
    pub(crate) context: Option<usize>,
}

impl Function {
    /// The kernel.
    pub(crate) fn kernel(&self) -> Outcome<&Kernel> {
        self.image.kernels.get(self.index).ok_or(Code::INVALID_HANDLE)
    }
}

/// All programs of a driver.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    last: usize,
    modules: BTreeMap<usize, Module>,
    libraries: BTreeMap<usize, Library>,
    functions: BTreeMap<usize, Member>,
    kernels: BTreeMap<usize, Member>,
    links: BTreeMap<usize, Link>,
    /// Settings by the handle of a function, or of a kernel and the device.
    settings: BTreeMap<(usize, c_int), Settings>,
    /// Addresses of all memory of variables.
    memory: BTreeSet<u64>,
}

/// The device of settings that are a function's and not a kernel's.
const OF_FUNCTION: c_int = -1;

impl Programs {
    /// A handle that nothing else of the driver has.
    fn handle(&mut self) -> usize {
        self.last = self.last.saturating_add(1);
        // Above all addresses of user space, so that no handle is a valid place. Clients take
        // handles for numbers with a sign: the highest bit is 0.
        1 << 62 | self.last << 4
    }

    /// A module comes to be.
    pub(crate) fn add_module(
        &mut self,
        context: usize,
        image: Arc<Image>,
        storage: Storage,
        library: Option<usize>,
    ) -> usize {
        let handle = self.handle();
        self.memory.extend(storage.to_free());
        let functions = BTreeMap::new();
        self.modules.insert(handle, Module { context, image, storage, library, functions });
        if let Some(owner) = library.and_then(|library| self.libraries.get_mut(&library)) {
            owner.modules.insert(context, handle);
        }
        handle
    }

    pub(crate) fn module(&self, handle: usize) -> Outcome<&Module> {
        self.modules.get(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// A module is gone. The answer is its memory, which the caller has to free.
    pub(crate) fn remove_module(&mut self, handle: usize) -> Vec<u64> {
        let Some(module) = self.modules.remove(&handle) else { return Vec::new() };
        for function in module.functions.values() {
            self.functions.remove(function);
            self.settings.remove(&(*function, OF_FUNCTION));
        }
        let library = module.library.and_then(|library| self.libraries.get_mut(&library));
        if let Some(library) = library {
            library.modules.remove(&module.context);
        }
        let memory: Vec<u64> = module.storage.to_free().collect();
        for ptr in &memory {
            self.memory.remove(ptr);
        }
        memory
    }

    /// The modules of a context are gone. The answer is their memory, which the caller has to free.
    pub(crate) fn remove_context(&mut self, context: usize) -> Vec<u64> {
        let modules = self.modules.iter().filter(|(_, module)| module.context == context);
        let modules: Vec<usize> = modules.map(|(handle, _)| *handle).collect();
        modules.into_iter().flat_map(|module| self.remove_module(module)).collect()
    }

    /// The handle of a module's function. Each function has one.
    pub(crate) fn function_of(&mut self, module: usize, index: usize) -> Outcome<usize> {
        let new = self.handle();
        let owner = self.modules.get_mut(&module).ok_or(Code::INVALID_HANDLE)?;
        let handle = *owner.functions.entry(index).or_insert(new);
        self.functions.insert(handle, Member { of: module, index });
        Ok(handle)
    }

    /// The module of a function.
    pub(crate) fn module_of(&self, function: usize) -> Outcome<usize> {
        self.functions.get(&function).map(|member| member.of).ok_or(Code::INVALID_HANDLE)
    }

    /// A library comes to be.
    pub(crate) fn add_library(&mut self, image: Result<Image, Refusal>) -> usize {
        let library = self.handle();
        let count = image.as_ref().map_or(0, |image| image.kernels.len());
        let mut kernels = Vec::with_capacity(count);
        for index in 0..count {
            let kernel = self.handle();
            self.kernels.insert(kernel, Member { of: library, index });
            kernels.push(kernel);
        }
        let (image, modules) = (image.map(Arc::new), BTreeMap::new());
        self.libraries.insert(library, Library { image, managed: None, kernels, modules });
        library
    }

    pub(crate) fn library(&self, handle: usize) -> Outcome<&Library> {
        self.libraries.get(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// The managed variables of a library have memory.
    pub(crate) fn set_managed(&mut self, library: usize, managed: Storage) {
        if let Some(library) = self.libraries.get_mut(&library) {
            self.memory.extend(managed.to_free());
            library.managed = Some(managed);
        }
    }

    /// A library is gone, with its modules. The answer is their memory, which the caller has to
    /// free.
    pub(crate) fn remove_library(&mut self, handle: usize) -> Vec<u64> {
        let Some(library) = self.libraries.remove(&handle) else { return Vec::new() };
        for kernel in &library.kernels {
            self.kernels.remove(kernel);
            self.settings.retain(|(of, _), _| of != kernel);
        }
        let modules = library.modules.values();
        let mut memory: Vec<u64> = modules.flat_map(|module| self.remove_module(*module)).collect();
        let managed = library.managed.unwrap_or_default();
        memory.extend(managed.to_free().inspect(|ptr| _ = self.memory.remove(ptr)));
        memory
    }

    /// The module of a library in a context, if there is one.
    pub(crate) fn module_of_library(&self, library: usize, context: usize) -> Option<usize> {
        self.libraries.get(&library)?.modules.get(&context).copied()
    }

    /// The library of a kernel, and the kernel's index in it.
    pub(crate) fn kernel(&self, handle: usize) -> Outcome<(usize, usize)> {
        let kernel = self.kernels.get(&handle).ok_or(Code::INVALID_HANDLE)?;
        Ok((kernel.of, kernel.index))
    }

    /// A function, or a kernel of a library on a device, which the driver takes as a function.
    pub(crate) fn function(&self, handle: usize, device: c_int) -> Outcome<Function> {
        let settings = |device| self.settings.get(&(handle, device)).copied().unwrap_or_default();
        if let Some(member) = self.functions.get(&handle) {
            let module = self.module(member.of)?;
            let image = Arc::clone(&module.image);
            let (index, context) = (member.index, Some(module.context));
            let (of, settings) = (member.of, settings(OF_FUNCTION));
            return Ok(Function { image, index, of, settings, context });
        }
        let (library, index) = self.kernel(handle)?;
        let image = Arc::clone(self.library(library)?.image()?);
        let settings = settings(device);
        Ok(Function { image, index, of: library, settings, context: None })
    }

    /// Sets what a program changed of a function, or of a kernel on a device.
    pub(crate) fn set(&mut self, handle: usize, device: c_int, settings: Settings) {
        let device = if self.functions.contains_key(&handle) { OF_FUNCTION } else { device };
        self.settings.insert((handle, device), settings);
    }

    /// A link begins.
    pub(crate) fn add_link(&mut self, link: Link) -> usize {
        let handle = self.handle();
        self.links.insert(handle, link);
        handle
    }

    pub(crate) fn link(&self, handle: usize) -> Outcome<&Link> {
        self.links.get(&handle).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn link_mut(&mut self, handle: usize) -> Outcome<&mut Link> {
        self.links.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// A link is gone, with its image.
    pub(crate) fn remove_link(&mut self, handle: usize) -> Outcome {
        self.links.remove(&handle).map(drop).ok_or(Code::INVALID_HANDLE)
    }

    /// The context of the module that memory of variables belongs to; `None` for memory that a
    /// library's modules share, and for other memory.
    pub(crate) fn context_of(&self, ptr: u64) -> Option<usize> {
        let mut modules = self.modules.values();
        modules.find(|module| module.storage.to_free().any(|of| of == ptr)).map(|of| of.context)
    }

    /// Whether an address is that of memory of variables, which programs cannot free.
    pub(crate) fn owns(&self, ptr: u64) -> bool {
        self.memory.contains(&ptr)
    }
}
