//! The instructions that are known, by name.

use super::builder::Builder;
use super::class::class;
use super::control::Labels;
use super::element;
use super::kinds;
use super::modifiers::{Modifiers, Refusal};
use crate::code::Code;
use crate::syntax::tree::Instruction;
use crate::types::Type;

impl<'t> Builder<'_, 't> {
    /// Lowers an instruction, or refuses it.
    pub(super) fn instruction(
        &mut self,
        instruction: &Instruction<'t>,
        labels: &dyn Labels,
    ) -> Result<(), Refusal> {
        self.guard = None;
        if let Some((name, negated)) = instruction.guard {
            let slot = self.source(&crate::syntax::tree::Operand::Name(name), Type::Pred)?;
            self.guard = Some((slot, negated));
        }
        (self.origin.class, self.origin.weight) = class(instruction.opcode);
        let (name, mut m) = Modifiers::split(instruction.opcode);
        element::check(name, instruction)?;
        let result =
            kinds::check(name, &m).and_then(|()| self.dispatch(name, &mut m, instruction, labels));
        self.guard = None;
        result?;
        m.finish()
    }

    fn dispatch(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        instruction: &Instruction<'t>,
        labels: &dyn Labels,
    ) -> Result<(), Refusal> {
        let o = &instruction.operands[..];
        match name {
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "rem" | "abs" | "neg" | "min"
            | "max" | "sad" | "rcp" | "sqrt" | "rsqrt" => self.arithmetic(name, m, instruction),
            "addc" | "subc" => {
                let sets = m.take("cc");
                let kind = m.kind()?;
                self.carrying(name, kind, o, sets, true)
            }
            "madc" => {
                let sets = m.take("cc");
                let part = m.must(&[("lo", 0), ("hi", 1)])?;
                let kind = m.kind()?;
                self.multiply_carrying(part, kind, o, sets, true)
            }
            "mul24" | "mad24" => self.multiply_24(name, m, o),
            "dp4a" | "dp2a" => self.dot(name, m, o),
            "vadd2" | "vsub2" | "vavrg2" | "vabsdiff2" | "vmin2" | "vmax2" | "vset2" | "vadd4"
            | "vsub4" | "vavrg4" | "vabsdiff4" | "vmin4" | "vmax4" | "vset4" => {
                self.video_lanes(name, m, o)
            }
            "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vset" | "vshl" | "vshr" | "vmad" => {
                self.video_words(name, m, o)
            }
            "popc" | "clz" | "brev" | "bfind" | "bfe" | "bfi" | "fns" | "szext" | "bmsk" => {
                self.field(name, m, o)
            }
            "and" | "or" | "xor" | "not" | "cnot" => self.logic(name, m, o),
            "shl" | "shr" => self.shift(name, m, o),
            "shf" => self.funnel(m, o),
            "lop3" => self.table_logic(m, o),
            "prmt" => self.permute(m, o),
            "mov" => self.moves(m, o),
            "selp" => self.select(m, o),
            "slct" => self.select_sign(m, o),
            "setp" => self.set_predicate(m, o),
            "set" => self.set_value(m, o),
            "testp" => self.test_property(m, o),
            "copysign" => self.copy_sign(m, o),
            "cvt" => self.convert(m, o),
            "cvta" => self.convert_address(m, o),
            "isspacep" => self.is_space(m, o),
            "mapa" => self.map_address(m, o),
            "getctarank" => self.rank(m, o),
            _ => self.other(name, m, instruction, labels),
        }
    }

    fn other(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        instruction: &Instruction<'t>,
        labels: &dyn Labels,
    ) -> Result<(), Refusal> {
        let o = &instruction.operands[..];
        match name {
            "ex2" | "lg2" | "sin" | "cos" | "tanh" => self.approximate(name, m, o),
            "ld" | "ldu" => self.load(name, m, o),
            "st" | "red" if m.take("async") => self.access_asynchronously(name, m, o),
            "st" => self.store(m, o),
            "atom" => self.atomic(m, o, true),
            "red" => self.atomic(m, o, false),
            "cp" => self.copy_asynchronously(m, o),
            "mbarrier" => self.mbarrier(m, o),
            "shfl" => self.shuffle(m, o),
            "vote" => self.vote(m, o),
            "match" => self.matches(m, o),
            "redux" => self.reduce(m, o),
            "mma" => self.matrix_product(m, o),
            "wmma" => self.fragments(m, o),
            "ldmatrix" | "stmatrix" => self.matrix_tiles(name, m, o),
            "movmatrix" => self.transpose(m, o),
            "activemask" | "elect" => self.mask(name, m, o),
            "bar" | "barrier" => self.barrier(name, m, o),
            "bra" => {
                m.take("uni");
                self.branch(o, labels)
            }
            "brx" => {
                m.must(&[("idx", ())])?;
                m.take("uni");
                self.branch_indexed(o, labels)
            }
            "call" => {
                m.take("uni");
                self.call(o)
            }
            "ret" => {
                m.take("uni");
                self.give_back();
                Ok(())
            }
            "exit" => {
                self.emit(Code::Exit, &[], &[], 0);
                Ok(())
            }
            "trap" | "brkpt" => {
                self.emit(Code::Trap, &[], &[], 0);
                Ok(())
            }
            "nanosleep" => {
                m.take("u32");
                self.emit(Code::Sleep, &[], &[], 0);
                Ok(())
            }
            "setmaxnreg" => {
                self.isa.needs_specific(name, "sm_90a")?;
                self.fence(name, m)
            }
            "membar" | "fence" | "prefetch" | "prefetchu" | "applypriority" | "discard"
            | "pmevent" | "griddepcontrol" => self.fence(name, m),
            "createpolicy" => self.policy(m, o),
            "alloca" | "stacksave" | "stackrestore" => self.stack(name, m, o),
            "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq" | "istypep" => {
                Err("textures and surfaces are not supported".to_owned())
            }
            "wgmma" | "tcgen05" => {
                Err("the tensor instructions of sm_90a and sm_100a are not supported: compile for a GPU before these, such as sm_80".to_owned())
            }
            "multimem" => Err("multicast memory is not supported".to_owned()),
            "tensormap" => Err("bulk tensor copies are not supported".to_owned()),
            _ => Err(format!("the instruction `{name}` is not supported")),
        }
    }

    /// Instructions that integers and floats share.
    fn arithmetic(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        instruction: &Instruction<'t>,
    ) -> Result<(), Refusal> {
        let o = &instruction.operands[..];
        let kind = m.kind()?;
        match kind {
            Type::F32 => self.single(name, m, o),
            Type::F64 => self.double(name, m, o),
            Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 => self.half(name, kind, m, o),
            _ => self.integer(name, kind, m, o),
        }
    }
}
