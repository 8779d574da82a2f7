//! Modules: trees of parameters and buffers.

use pagewise::Result;
use pagewise::refuse::invalid;

use super::tensor::Tensor;

/// A module: parameters, buffers, and modules inside it, each with a name.
///
/// ```
/// use pagewise_managers::mempool::{Module, TensorLayout, create_unified_mempool};
/// use pagewise::{Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::legacy_default(&machine);
/// let pool = create_unified_mempool(&machine)?;
/// let tensor = |name| pool.tensor(name, TensorLayout::contiguous(&[64], 2)?, &stream);
/// let mut layer = Module::new();
/// layer.add_parameter("weight", tensor("w")?)?;
/// layer.add_parameter("bias", None)?;
/// let mut model = Module::new();
/// model.add_module("layer", layer)?;
/// model.add_buffer("steps", tensor("s")?)?;
/// let names: Vec<String> = model.named_parameters().map(|(name, _)| name).collect();
/// assert_eq!(names, ["layer.weight"], "what is `None` is left out");
/// assert_eq!(model.named_buffers().count(), 1);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Module {
    parameters: Vec<(String, Option<Tensor>)>,
    buffers: Vec<(String, Option<Tensor>)>,
    modules: Vec<(String, Self)>,
}

impl Module {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter; `None` for one that is registered and absent.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for an empty name, one with a dot, or one that is taken.
    ///
    /// ```
    /// let mut module = pagewise_managers::mempool::Module::new();
    /// module.add_parameter("bias", None)?;
    /// assert!(module.add_buffer("bias", None).is_err(), "taken");
    /// assert!(module.add_parameter("a.b", None).is_err(), "dots are between modules");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn add_parameter(&mut self, name: &str, tensor: impl Into<Option<Tensor>>) -> Result<()> {
        self.check_name("add_parameter", name)?;
        self.parameters.push((name.to_owned(), tensor.into()));
        Ok(())
    }

    /// Adds a buffer: a tensor that belongs to the module and is not trained.
    ///
    /// # Errors
    /// As [`add_parameter`](Self::add_parameter).
    pub fn add_buffer(&mut self, name: &str, tensor: impl Into<Option<Tensor>>) -> Result<()> {
        self.check_name("add_buffer", name)?;
        self.buffers.push((name.to_owned(), tensor.into()));
        Ok(())
    }

    /// Adds a module inside this one.
    ///
    /// # Errors
    /// As [`add_parameter`](Self::add_parameter).
    pub fn add_module(&mut self, name: &str, module: Self) -> Result<()> {
        self.check_name("add_module", name)?;
        self.modules.push((name.to_owned(), module));
        Ok(())
    }

    /// All parameters with their full names, this module's first, in the order of adding.
    pub fn named_parameters(&self) -> impl Iterator<Item = (String, &Tensor)> {
        self.named(|module| &module.parameters).into_iter()
    }

    /// All buffers, the same way.
    pub fn named_buffers(&self) -> impl Iterator<Item = (String, &Tensor)> {
        self.named(|module| &module.buffers).into_iter()
    }

    /// A stack instead of recursion: how deep a tree is, is the caller's choice.
    fn named<'m>(
        &'m self,
        of: impl Fn(&'m Self) -> &'m [(String, Option<Tensor>)],
    ) -> Vec<(String, &'m Tensor)> {
        let mut named = Vec::new();
        let mut todo = vec![(String::new(), self)];
        while let Some((prefix, module)) = todo.pop() {
            let present = of(module).iter().filter_map(|(name, tensor)| {
                tensor.as_ref().map(|tensor| (format!("{prefix}{name}"), tensor))
            });
            named.extend(present);
            let inside = module.modules.iter().rev();
            todo.extend(inside.map(|(name, module)| (format!("{prefix}{name}."), module)));
        }
        named
    }

    fn check_name(&self, operation: &'static str, name: &str) -> Result<()> {
        if name.is_empty() || name.contains('.') {
            let why = format!("`{name}`: a name is not empty and has no dot");
            return Err(invalid(operation, why));
        }
        let tensors = self.parameters.iter().chain(&self.buffers).map(|(name, _)| name);
        let modules = self.modules.iter().map(|(name, _)| name);
        if tensors.chain(modules).any(|taken| taken == name) {
            return Err(invalid(operation, format!("`{name}` is taken in this module")));
        }
        Ok(())
    }
}
