//! Jumps by tables, calls and returns, and the stack in local memory.

use super::access::Blocked;
use super::block::Common;
use super::engine::{Engine, Next, first};
use super::memory::FUNCTION_WINDOW;
use super::registers::lanes;
use super::report::Cause;
use super::warp::{Fragment, Frame, Return, Warp};
use crate::code::{Code, Op, WIDTH, active};

impl Engine<'_> {
    pub(super) fn control(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        op: &Op,
        mask: u32,
    ) -> Result<Next, Blocked> {
        match op.code {
            Code::Exit => {
                common.end_threads(warp, mask);
                fragment.mask &= !mask;
                return Ok(if fragment.mask == 0 { Next::End } else { Next::Go });
            }
            Code::BranchTable(table) => {
                let table = &self.program.tables[table as usize];
                let index = *lanes(self.program, warp, &fragment.frame, mask).word(op.s[0]);
                let lane = first(mask);
                let Some(&target) = table.get(index[lane] as usize) else {
                    return Err(Blocked::trap(lane, None, Cause::NoFunction));
                };
                let same = active(mask)
                    .filter(|&other| index[other] == index[lane])
                    .fold(0, |m, l| m | 1 << l);
                self.leave_behind(warp, fragment, mask, same);
                self.jump(warp, fragment, target);
            }
            Code::Return => {
                self.only(warp, fragment, mask);
                self.give_back(warp, fragment)?;
            }
            Code::CallIndirect(call) => {
                let address = *lanes(self.program, warp, &fragment.frame, mask).double(op.s[0]);
                let lane = first(mask);
                let same = active(mask)
                    .filter(|&other| address[other] == address[lane])
                    .fold(0, |m, l| m | 1 << l);
                let index = (address[lane].wrapping_sub(FUNCTION_WINDOW) / 16).wrapping_sub(1);
                let function =
                    self.program.functions.iter().position(|f| u64::from(f.index) == index);
                let Some(function) = function.filter(|&function| function != 0) else {
                    return Err(Blocked::trap(lane, Some(address[lane]), Cause::NoFunction));
                };
                self.leave_behind(warp, fragment, mask, same);
                self.call(warp, fragment, function as u32, call)?;
            }
            Code::Call(call) => {
                self.only(warp, fragment, mask);
                let function = self.program.calls[call as usize].function.unwrap_or(0);
                self.call(warp, fragment, function, call)?;
            }
            _ => {}
        }
        Ok(Next::Jump)
    }

    /// Keeps the lanes `same` of those that execute the instruction. The rest of them execute it
    /// again; lanes that do not execute it go on.
    fn leave_behind(&mut self, warp: &mut Warp, fragment: &mut Fragment, mask: u32, same: u32) {
        self.only(warp, fragment, mask);
        if same != mask {
            let mut rest = fragment.clone();
            rest.mask = mask & !same;
            fragment.mask = same;
            warp.add(rest);
        }
    }

    fn call(
        &mut self,
        warp: &mut Warp,
        fragment: &mut Fragment,
        function: u32,
        call: u32,
    ) -> Result<(), Blocked> {
        let program = self.program;
        let (caller, callee) = (
            program.functions[fragment.frame.function as usize],
            program.functions[function as usize],
        );
        let old = fragment.frame;
        let frame = Frame {
            function,
            words: old.words + caller.files.words,
            doubles: old.doubles + caller.files.doubles,
            predicates: old.predicates + caller.files.predicates,
            local: old.top,
            top: old.top + callee.frame,
        };
        // Registers count as well: a recursion without variables ends, too.
        if frame.top > self.rules.local_limit || fragment.stack.len() > 4096 {
            return Err(Blocked::trap(first(fragment.mask), None, Cause::StackOverflow));
        }
        warp.reserve(
            frame.words + callee.files.words,
            frame.doubles + callee.files.doubles,
            frame.predicates + callee.files.predicates,
        );
        warp.reserve_local(frame.top);
        for &(from, to, bytes) in &program.calls[call as usize].arguments {
            copy_local(warp, fragment.mask, (old.local + from, frame.local + to, bytes));
        }
        fragment.stack.push(Return { pc: fragment.pc + 1, frame: old, call });
        fragment.frame = frame;
        fragment.pc = callee.start;
        Ok(())
    }

    fn give_back(&mut self, warp: &mut Warp, fragment: &mut Fragment) -> Result<(), Blocked> {
        let Some(back) = fragment.stack.pop() else {
            return Err(Blocked::trap(first(fragment.mask), None, Cause::NoFunction));
        };
        for &(from, to, bytes) in &self.program.calls[back.call as usize].results {
            copy_local(
                warp,
                fragment.mask,
                (fragment.frame.local + from, back.frame.local + to, bytes),
            );
        }
        (fragment.frame, fragment.pc) = (back.frame, back.pc);
        Ok(())
    }

    pub(super) fn stack(
        &mut self,
        warp: &mut Warp,
        fragment: &mut Fragment,
        op: &Op,
        mask: u32,
    ) -> Result<(), Blocked> {
        let mut top = fragment.frame.top;
        match op.code {
            Code::Alloca => {
                // All lanes get the room of the lane that asks for most.
                let sizes = *lanes(self.program, warp, &fragment.frame, mask).double(op.s[0]);
                let most = active(mask).map(|lane| sizes[lane]).max().unwrap_or(0);
                let start = u64::from(top).next_multiple_of(op.imm.max(1));
                let end = start.saturating_add(most).saturating_add(15) & !15;
                if end > u64::from(self.rules.local_limit) {
                    return Err(Blocked::trap(first(mask), None, Cause::StackOverflow));
                }
                top = end as u32;
                warp.reserve_local(top);
                lanes(self.program, warp, &fragment.frame, mask)
                    .set_double(op.d[0], &[start; WIDTH]);
            }
            Code::StackSave => {
                lanes(self.program, warp, &fragment.frame, mask)
                    .set_double(op.d[0], &[u64::from(top); WIDTH]);
            }
            _ => {
                let saved =
                    lanes(self.program, warp, &fragment.frame, mask).double(op.s[0])[first(mask)];
                let linked = &self.program.functions[fragment.frame.function as usize];
                let least = fragment.frame.local + linked.frame;
                top = saved.clamp(
                    u64::from(least),
                    u64::from(self.rules.local_limit).max(u64::from(least)),
                ) as u32;
                warp.reserve_local(top);
            }
        }
        fragment.frame.top = top;
        Ok(())
    }
}

/// Copies bytes between frames: from, to, how many. Both ends are inside of local memory.
fn copy_local(warp: &mut Warp, mask: u32, (from, to, bytes): (u32, u32, u32)) {
    let end = u64::from(from.max(to)) + u64::from(bytes);
    if end > u64::from(warp.local_bytes) {
        return;
    }
    for lane in active(mask) {
        let source = warp.local_pointer(lane, u64::from(from));
        let target = warp.local_pointer(lane, u64::from(to));
        // SAFETY: both ranges are inside of the lane's local memory, as checked above.
        unsafe { std::ptr::copy(source, target, bytes as usize) };
    }
}
