//! Checks a syntax tree, and lowers its functions.
//!
//! Every instruction is known with all of its modifiers and types, or the module is refused.

mod approximate;
mod asynchronous;
mod atomic;
mod body;
mod builder;
mod class;
mod cluster;
mod compare;
mod control;
mod conversion;
mod convert;
mod element;
mod fence;
mod fields;
mod float;
mod fuse;
mod half;
mod inline;
mod instruction;
mod integer;
mod kinds;
mod logic;
mod macros;
mod matrix;
mod memory;
mod modifiers;
mod narrow;
mod operands;
mod order;
mod pair;
mod promote;
mod quarters;
mod special;
mod symbols;
mod target;
mod video;
mod warp;
mod wmma;

use std::collections::HashMap;

use body::Body;
use builder::{Builder, Local};
pub(crate) use control::is_service;
use control::{Labels, frame_access};
use symbols::Symbols;
use target::Isa;

use crate::code::{Code, Function, Origin};
use crate::error::LoadError;
use crate::module::{Clusters, KernelInfo, Module, Parameter, Space};
use crate::syntax::tree::{self, Statement, StatementKind};

/// The most bytes of a kernel's parameters.
const MOST_PARAMETERS: u32 = 32764;

/// The first GPUs on which the system has bytes of shared memory in each block, and how many
/// (`%reserved_smem_offset_cap`, read on an H200). Cooperative groups keep their state there.
const FIRST_TO_RESERVE: (u32, u32) = (8, 0);
const RESERVED_SHARED: u32 = 1024;

/// The bounds of a thread's registers.
const FEWEST_REGISTERS: u64 = 16;
const MOST_REGISTERS: u64 = 255;

/// Lowers a module for a compute capability.
pub(crate) fn lower(tree: &tree::Module<'_>, compute: (u32, u32)) -> Result<Module, LoadError> {
    let isa = Isa::of(tree, compute)?;
    let mut symbols = Symbols::of(tree)?;
    let named = symbols.functions.clone();
    let (mut bodies, mut params) = (Vec::new(), Vec::new());
    for function in &named {
        let (body, of_kernel) = lower_function(&mut symbols, function, isa)?;
        bodies.push(body);
        params.push(of_kernel);
    }
    inline::inline(&mut bodies);
    let mut functions = Vec::new();
    let mut kernels = Vec::new();
    for ((function, body), params) in named.into_iter().zip(bodies).zip(params) {
        let lowered = body.finish().map_err(|why| function.place.error(why))?;
        if function.entry && function.body.is_some() {
            kernels.push(kernel(functions.len() as u32, function, &lowered, params)?);
        }
        functions.push(lowered);
    }
    symbols.contents()?;
    let constant = symbols.variables.iter().filter(|variable| variable.space == Space::Constant);
    let constant =
        constant.map(|variable| variable.bytes).sum::<u64>().min(u64::from(u32::MAX)) as u32;
    let files = tree.files.iter().map(|&(index, name)| (index, name.to_owned())).collect();
    let mut module = Module {
        functions,
        kernels: Vec::new(),
        variables: symbols.variables,
        shared: symbols.shared,
        reserved_shared: if compute >= FIRST_TO_RESERVE { RESERVED_SHARED } else { 0 },
        files,
    };
    for mut kernel in kernels {
        kernel.constant = constant;
        module.add_kernel(kernel);
    }
    Ok(module)
}

/// The scopes of a body and their labels: a label is seen in its scope and the ones inside.
struct Scopes<'t> {
    parents: Vec<Option<usize>>,
    labels: Vec<HashMap<&'t str, u32>>,
    now: usize,
    opened: usize,
    count: u32,
}

impl<'t> Scopes<'t> {
    fn of(body: &[Statement<'t>]) -> Result<Self, LoadError> {
        let (parents, labels) = (vec![None], vec![HashMap::new()]);
        let mut scopes = Self { parents, labels, now: 0, opened: 0, count: 0 };
        for statement in body {
            match &statement.kind {
                StatementKind::Open => {
                    scopes.parents.push(Some(scopes.now));
                    scopes.labels.push(HashMap::new());
                    scopes.now = scopes.parents.len() - 1;
                }
                StatementKind::Close => scopes.close(),
                StatementKind::Label(name) => {
                    if scopes.labels[scopes.now].insert(name, scopes.count).is_some() {
                        return Err(statement
                            .place
                            .error(format!("the label `{name}` is there twice")));
                    }
                    scopes.count += 1;
                }
                _ => {}
            }
        }
        scopes.now = 0;
        Ok(scopes)
    }

    fn open(&mut self) {
        self.opened += 1;
        self.now = self.opened;
    }

    fn close(&mut self) {
        self.now = self.parents[self.now].unwrap_or(0);
    }
}

impl Labels for Scopes<'_> {
    fn label(&self, name: &str) -> Option<u32> {
        let mut scope = Some(self.now);
        while let Some(at) = scope {
            if let Some(&label) = self.labels[at].get(name) {
                return Some(label);
            }
            scope = self.parents[at];
        }
        None
    }
}

fn lower_function<'t>(
    symbols: &mut Symbols<'t>,
    function: &'t tree::Function<'t>,
    isa: Isa,
) -> Result<(Body, Vec<Parameter>), LoadError> {
    let Some(body) = &function.body else {
        return Ok((Body::default(), Vec::new()));
    };
    let mut builder = Builder::new(symbols, isa, function.entry);
    let refuse = |why: String| function.place.error(why);
    let params = if function.entry {
        kernel_parameters(&mut builder, function).map_err(refuse)?
    } else {
        function_parameters(&mut builder, function).map_err(refuse)?;
        Vec::new()
    };
    let mut scopes = Scopes::of(body)?;
    let mut positions = vec![0_u32; scopes.count as usize];
    let mut location = (0, 0);
    for statement in body {
        let origin = Origin {
            line: statement.place.line,
            file: location.0,
            source: location.1,
            ..Origin::default()
        };
        builder.origin = origin;
        match &statement.kind {
            StatementKind::Open => {
                scopes.open();
                builder.open();
            }
            StatementKind::Close => {
                scopes.close();
                builder.close();
            }
            StatementKind::Label(name) => {
                if let Some(label) = scopes.label(name) {
                    positions[label as usize] = builder.body.drafts.len() as u32;
                }
            }
            StatementKind::Variable(variable) => builder.declare(variable)?,
            StatementKind::Location { file, line } => location = (*file, *line),
            StatementKind::Targets(name, targets) => builder.define(name, Local::Targets(targets)),
            StatementKind::Prototype(name, signature) => {
                builder.define(name, Local::Prototype(signature))
            }
            StatementKind::Instruction(instruction) => {
                builder.instruction(instruction, &scopes).map_err(|message| LoadError {
                    instruction: shortened(instruction.text),
                    ..statement.place.error(message)
                })?;
            }
        }
    }
    builder.give_back();
    let Builder { mut body, parts, .. } = builder;
    body.resolve(&positions);
    fuse::fuse(&mut body.drafts, &body.tables, &parts);
    Ok((body, params))
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > 160 {
        format!("{}…", line.chars().take(160).collect::<String>())
    } else {
        line
    }
}

fn kernel_parameters<'t>(
    builder: &mut Builder<'_, 't>,
    function: &'t tree::Function<'t>,
) -> Result<Vec<Parameter>, String> {
    let (mut at, mut params) = (0, Vec::new());
    for variable in &function.signature.params {
        if variable.sizes.contains(&None) {
            return Err(format!("the parameter `{}` has no size: give it one", variable.name));
        }
        let (offset, bytes) = Builder::signature_offset(&mut at, variable)?;
        let align = symbols::extent(variable).map_err(|error| error.message)?.1 as u32;
        params.push(Parameter { offset, bytes, align });
        builder.define(variable.name, Local::Parameter(offset));
    }
    if at > MOST_PARAMETERS {
        return Err(format!("a kernel takes at most {MOST_PARAMETERS} bytes"));
    }
    Ok(params)
}

/// The parameters and results of a function are the first bytes of its frame.
fn function_parameters<'t>(
    builder: &mut Builder<'_, 't>,
    function: &'t tree::Function<'t>,
) -> Result<(), String> {
    let mut at = 0;
    let signature = &function.signature;
    let mut registers = Vec::new();
    for (index, variable) in signature.params.iter().chain(&signature.returns).enumerate() {
        if matches!(variable.kind, "u8" | "s8" | "u16" | "s16" | "pred")
            && variable.sizes.is_empty()
        {
            return Err(format!(
                "functions neither take nor give values of .{}, as `{}` is: make it .b8, .b16 or wider",
                variable.kind, variable.name
            ));
        }
        let (offset, bytes) = Builder::signature_offset(&mut at, variable)?;
        if variable.space == tree::Space::Register {
            registers.push((variable, offset, index < signature.params.len()));
        } else {
            builder.define(variable.name, Local::Frame(offset, bytes));
        }
        builder.body.variables.push((offset, bytes));
    }
    builder.body.takes = at;
    builder.room(u64::from(at), 1)?;
    for (variable, offset, taken) in registers {
        builder.declare(variable).map_err(|error| error.message)?;
        let Some(Local::Register(register)) = builder.find(variable.name) else {
            return Err("a parameter in a vector register is not supported".to_owned());
        };
        if register.bits == 128 {
            return Err("a parameter in a register of 128 bits is not supported".to_owned());
        }
        if taken {
            let base = builder.number(0, true);
            builder.emit(
                Code::Load(frame_access(register.bits)),
                &[register.slot],
                &[base],
                u64::from(offset),
            );
        } else {
            builder.returns.push((register, offset));
        }
    }
    Ok(())
}

/// A kernel's own figures. Those of the functions that it calls are added by the module.
fn kernel(
    index: u32,
    function: &tree::Function<'_>,
    lowered: &Function,
    params: Vec<Parameter>,
) -> Result<KernelInfo, LoadError> {
    let directive =
        |name: &str| function.directives.iter().find(|directive| directive.name == name);
    let axes = |directive: &tree::Directive<'_>| {
        let axis = |index: usize| {
            directive.values.get(index).map_or(1, |&value| value.min(u64::from(u32::MAX)) as u32)
        };
        [axis(0), axis(1), axis(2)]
    };
    let product = |axes: [u32; 3]| axes.iter().fold(1_u32, |all, &one| all.saturating_mul(one));
    let required_threads = directive("reqntid").map(axes);
    let max_threads =
        directive("maxntid").map(axes).or(required_threads).map_or(1024, product).min(1024);
    let param_bytes = params.last().map_or(0, |last| last.offset + last.bytes);
    let min_blocks = directive("minnctapersm").and_then(|directive| directive.values.first());
    for directive in &function.directives {
        let known = [
            "maxntid",
            "reqntid",
            "minnctapersm",
            "maxnctapersm",
            "maxnreg",
            "reqnctapercluster",
            "maxclusterrank",
            "explicitcluster",
            "noreturn",
            "abi_preserve",
        ];
        if !known.contains(&directive.name) {
            return Err(function
                .place
                .error(format!("the directive `.{}` is not supported", directive.name)));
        }
    }
    let bounds = directive("maxntid").or(directive("reqntid")).map(|_| max_threads);
    let most = directive("maxnreg").and_then(|directive| directive.values.first());
    let registers_max = registers_max(bounds, min_blocks.copied(), most.copied());
    Ok(KernelInfo {
        name: function.name.to_owned(),
        params,
        param_bytes,
        registers: lowered.registers().min(registers_max),
        registers_max,
        static_shared: 0,
        local: lowered.frame,
        constant: 0,
        max_threads,
        required_threads,
        clusters: Clusters {
            required: directive("reqnctapercluster").map(axes),
            most: directive("maxclusterrank").map(|directive| axes(directive)[0]),
            explicit: directive("explicitcluster").is_some(),
        },
        min_blocks: min_blocks.map(|&value| value.min(u64::from(u32::MAX)) as u32),
        function: index,
    })
}

/// The most registers of a thread, by what a kernel declares of its launches: a compiler has to fit
/// so many blocks of so many threads into a multiprocessor's 65,536 registers.
fn registers_max(threads: Option<u32>, blocks: Option<u64>, most: Option<u64>) -> u32 {
    let by_bounds = threads.map_or(u64::MAX, |threads| {
        let warps = u64::from(threads).div_ceil(32).max(1);
        let each = 65536 / (32 * warps) / blocks.unwrap_or(1).max(1);
        each - each % 8
    });
    let most = most.unwrap_or(u64::MAX).min(by_bounds);
    most.clamp(FEWEST_REGISTERS, MOST_REGISTERS) as u32
}
