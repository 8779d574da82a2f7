//! Jumps, calls, returns.

use super::builder::{Builder, Local};
use super::modifiers::Refusal;
use super::operands::file;
use super::symbols::Symbol;
use crate::code::{Access, Call, Code, File, Fill, Place, Service, Slot};
use crate::syntax::tree::{Operand, Signature, Variable};
use crate::types::Type;

/// Where labels are, as far as they are known.
pub(super) trait Labels {
    /// The number of a label; its position replaces it at the end.
    fn label(&self, name: &str) -> Option<u32>;
}

impl<'t> Builder<'_, 't> {
    /// `bra`
    pub(super) fn branch(&mut self, o: &[Operand<'t>], labels: &dyn Labels) -> Result<(), Refusal> {
        let [Operand::Name(name)] = o else { return Err("a label is expected".to_owned()) };
        let label =
            labels.label(name).ok_or_else(|| format!("the label `{name}` is not in reach"))?;
        self.emit(Code::Branch(label), &[], &[], 0);
        Ok(())
    }

    /// `brx.idx`
    pub(super) fn branch_indexed(
        &mut self,
        o: &[Operand<'t>],
        labels: &dyn Labels,
    ) -> Result<(), Refusal> {
        let [index, list] = o else { return Err("2 operands are expected".to_owned()) };
        let targets = self.targets(list).ok_or("a list of `.branchtargets` is expected")?;
        let mut table = Vec::new();
        for name in targets {
            table.push(
                labels.label(name).ok_or_else(|| format!("the label `{name}` is not in reach"))?,
            );
        }
        let index = self.source(index, Type::U32)?;
        self.body.tables.push(table);
        self.emit(Code::BranchTable(self.body.tables.len() as u32 - 1), &[], &[index], 0);
        Ok(())
    }

    /// `ret`
    pub(super) fn give_back(&mut self) {
        for (register, offset) in self.returns.clone() {
            let access = frame_access(register.bits);
            let base = self.number(0, true);
            self.emit(Code::Store(access), &[], &[base, register.slot], u64::from(offset));
        }
        self.emit(if self.entry { Code::Exit } else { Code::Return }, &[], &[], 0);
    }

    /// `call`
    pub(super) fn call(&mut self, o: &[Operand<'t>]) -> Result<(), Refusal> {
        let empty: &[Operand<'t>] = &[];
        let (results, rest) = match o.first() {
            Some(Operand::List(results)) => (&results[..], &o[1..]),
            _ => (empty, o),
        };
        let (Some(Operand::Name(name)), rest) = (rest.first(), rest.get(1..).unwrap_or(&[])) else {
            return Err("the function's name is expected".to_owned());
        };
        let (arguments, rest) = match rest.first() {
            Some(Operand::List(arguments)) => (&arguments[..], &rest[1..]),
            _ => (empty, rest),
        };
        if let Some(Local::Symbol(Symbol::Function(index))) = self.find(name) {
            let function = self.symbols.functions[index as usize];
            if function.body.is_none() {
                return self.service(name, results, arguments);
            }
            if function.entry {
                return Err("a kernel is not called".to_owned());
            }
            return self.call_with(Some(index), None, &function.signature, results, arguments);
        }
        let address = self.source(&Operand::Name(name), Type::U64)?;
        let prototype = match rest.first() {
            Some(Operand::Name(list)) => self.find(list),
            _ => None,
        };
        let signature = match prototype {
            Some(Local::Prototype(signature)) => signature,
            Some(Local::Targets(targets)) => {
                let first = targets.first().and_then(|name| self.symbols.names.get(name));
                match first {
                    Some(&Symbol::Function(index)) => {
                        &self.symbols.functions[index as usize].signature
                    }
                    _ => return Err("the targets of this call are not declared".to_owned()),
                }
            }
            _ => {
                return Err(
                    "an indirect call names its `.callprototype` or `.calltargets`".to_owned()
                );
            }
        };
        self.body.indirect = true;
        self.call_with(None, Some(address), signature, results, arguments)
    }

    fn call_with(
        &mut self,
        function: Option<u32>,
        address: Option<Slot>,
        signature: &'t Signature<'t>,
        results: &[Operand<'t>],
        arguments: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        if results.len() != signature.returns.len() || arguments.len() != signature.params.len() {
            return Err(format!(
                "the function takes {} arguments and gives {} results",
                signature.params.len(),
                signature.returns.len()
            ));
        }
        let mut call = Call { function, ..Call::default() };
        let mut at = 0;
        for (operand, formal) in arguments.iter().zip(&signature.params) {
            let (to, bytes) = Self::signature_offset(&mut at, formal)?;
            let from = self.argument(operand, formal, bytes)?;
            call.arguments.push((from, to, bytes));
        }
        let mut loads = Vec::new();
        for (operand, formal) in results.iter().zip(&signature.returns) {
            let (from, bytes) = Self::signature_offset(&mut at, formal)?;
            if let Operand::Name(name) = operand
                && let Some(Local::Frame(to, size)) = self.find(name)
            {
                call.results.push((from, to, bytes.min(size)));
                continue;
            }
            let register = self
                .any_register(operand)?
                .filter(|register| register.bits != 128)
                .ok_or("a result is no variable that is declared here")?;
            let to = self.unnamed_variable()?;
            call.results.push((from, to, bytes.min(8)));
            loads.push((register, to));
        }
        self.body.calls.push(call);
        let index = self.body.calls.len() as u32 - 1;
        match address {
            Some(address) => self.emit(Code::CallIndirect(index), &[], &[address], 0),
            None => self.emit(Code::Call(index), &[], &[], 0),
        }
        for (register, at) in loads {
            let base = self.number(0, true);
            self.emit(
                Code::Load(frame_access(register.bits)),
                &[register.slot],
                &[base],
                u64::from(at),
            );
        }
        Ok(())
    }

    /// The offset in the frame where an argument is, or is put.
    fn argument(
        &mut self,
        operand: &Operand<'t>,
        formal: &Variable<'t>,
        bytes: u32,
    ) -> Result<u32, Refusal> {
        if let Operand::Name(name) = operand
            && let Some(Local::Frame(from, size)) = self.find(name)
        {
            if size < bytes {
                return Err(format!("`{name}` has {size} bytes, and the function takes {bytes}"));
            }
            return Ok(from);
        }
        let kind = super::modifiers::kind(formal.kind).ok_or("a parameter's type is not known")?;
        let value = self.source(operand, kind)?;
        let at = self.unnamed_variable()?;
        let base = self.number(0, true);
        let bits = super::operands::width(kind);
        self.emit(Code::Store(frame_access(bits)), &[], &[base, value], u64::from(at));
        Ok(at)
    }

    /// A function of the system.
    fn service(
        &mut self,
        name: &str,
        results: &[Operand<'t>],
        arguments: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let Some((service, takes, gives)) = service(name) else {
            return Err(format!(
                "the function `{name}` is declared and not defined: link the module that defines it"
            ));
        };
        if arguments.len() != takes.len() || results.len() > 1 {
            return Err(format!("`{name}` takes {} arguments", takes.len()));
        }
        let mut slots = Vec::new();
        for (operand, &bytes) in arguments.iter().zip(takes) {
            let Operand::Name(argument) = operand else {
                return Err("an argument is a variable".to_owned());
            };
            let Some(Local::Frame(at, _)) = self.find(argument) else {
                return Err(format!("`{argument}` is no variable of this function"));
            };
            let slot = self.temporary(file(bytes * 8));
            let base = self.number(0, true);
            self.emit(Code::Load(frame_access(bytes * 8)), &[slot], &[base], u64::from(at));
            slots.push(slot);
        }
        let result = gives.map(|bytes| self.temporary(file(bytes * 8)));
        let d: Vec<Slot> = result.into_iter().collect();
        self.emit(Code::Service(service), &d, &slots, 0);
        if let (Some(Operand::Name(to)), Some(result)) = (results.first(), result)
            && let Some(Local::Frame(at, _)) = self.find(to)
        {
            let base = self.number(0, true);
            let bits = if result.file == File::Double { 64 } else { 32 };
            self.emit(Code::Store(frame_access(bits)), &[], &[base, result], u64::from(at));
        }
        Ok(())
    }
}

/// A function of the system: the bytes of its arguments, and of its result.
fn service(name: &str) -> Option<(Service, &'static [u32], Option<u32>)> {
    Some(match name {
        "vprintf" => (Service::Print, &[8, 8], Some(4)),
        "malloc" => (Service::Allocate, &[8], Some(8)),
        "free" => (Service::Free, &[8], None),
        "cudaGraphSetConditional" => (Service::SetCondition, &[8, 4], None),
        "__assertfail" => (Service::Assert, &[8, 8, 4, 8, 8], None),
        _ => return None,
    })
}

/// Whether the system defines a function.
pub(crate) fn is_service(name: &str) -> bool {
    service(name).is_some()
}

/// An access to the function's frame.
pub(super) fn frame_access(bits: u32) -> Access {
    Access {
        place: Place::Frame,
        bytes: (bits / 8).max(1) as u8,
        count: 1,
        wide: true,
        fill: Fill::Zero,
        doubles: u8::from(bits == 64),
        shared: false,
    }
}
