//! Calls of the system from kernels: `printf`, `malloc`, `free`, `assert`.

use super::access::{Blocked, Wanted, read};
use super::block::Common;
use super::engine::Engine;
use super::format::Spec;
use super::host::AssertFailure;
use super::memory::Kind;
use super::registers::lanes;
use super::report::Cause;
use super::warp::{Fragment, Warp};
use crate::code::{Op, Place, Service, WIDTH, active};

/// The longest string that is read from a kernel's memory.
const LONGEST: u64 = 8192;

/// The memory of one lane.
struct Lane<'l, 'e, 'r> {
    engine: &'l mut Engine<'e>,
    common: &'r mut Common,
    warp: &'r mut Warp,
    fragment: &'r Fragment,
    lane: usize,
}

impl Lane<'_, '_, '_> {
    fn number(&mut self, address: u64, bytes: u8) -> Result<u64, Blocked> {
        let addresses = [address; WIDTH];
        let wanted = Wanted {
            place: Place::Generic,
            bytes: u32::from(bytes),
            kind: Kind::Read,
            mask: 1 << self.lane,
        };
        let reach = &mut self.engine.reach;
        let places = reach.places(self.common, self.warp, self.fragment, &addresses, wanted)?;
        // SAFETY: `places` gave the pointer for these bytes.
        Ok(unsafe { read(places.pointers[self.lane], bytes) })
    }

    fn text(&mut self, address: u64) -> Result<Vec<u8>, Blocked> {
        let mut text = Vec::new();
        for offset in 0..LONGEST {
            let byte = self.number(address.wrapping_add(offset), 1)? as u8;
            if byte == 0 {
                break;
            }
            text.push(byte);
        }
        Ok(text)
    }

    /// The text of one `printf`, and how many arguments it takes.
    fn formatted(&mut self, format: u64, arguments: u64) -> Result<(Vec<u8>, u32), Blocked> {
        let format = self.text(format)?;
        let (mut out, mut at, mut count) = (Vec::new(), arguments, 0);
        let mut next = 0;
        while next < format.len() {
            if format[next] != b'%' {
                out.push(format[next]);
                next += 1;
                continue;
            }
            let (mut spec, used) = Spec::parse(&format[next + 1..]);
            let directive = &format[next..next + 1 + used];
            next += directive.len();
            if !spec.is_known() {
                out.extend_from_slice(directive);
                continue;
            }
            if spec.conversion == b'%' {
                out.push(b'%');
                continue;
            }
            for star in [spec.star_width, spec.star_precision] {
                if star {
                    let value = self.argument(&mut at, 4)? as u32 as i32;
                    spec.take_star(value);
                    count += 1;
                }
            }
            let bytes = spec.bytes();
            let value = self.argument(&mut at, bytes)?;
            count += 1;
            if spec.conversion == b's' {
                const NULL: &[u8] = b"(null)";
                let text = match value {
                    // Nothing, if not all of it has room.
                    0 if spec.precision.is_some_and(|most| most < NULL.len()) => Vec::new(),
                    0 => NULL.to_vec(),
                    _ => self.text(value)?,
                };
                let length = spec.precision.map_or(text.len(), |most| most.min(text.len()));
                spec.pad(&mut out, &text[..length]);
            } else {
                spec.value(&mut out, value);
            }
        }
        Ok((out, count))
    }

    fn argument(&mut self, at: &mut u64, bytes: u8) -> Result<u64, Blocked> {
        *at = at.next_multiple_of(u64::from(bytes));
        let value = self.number(*at, bytes)?;
        *at += u64::from(bytes);
        Ok(value)
    }
}

impl Engine<'_> {
    pub(super) fn service(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        service: Service,
        mask: u32,
    ) -> Result<(), Blocked> {
        match service {
            Service::Print => self.print(common, warp, fragment, op, mask),
            Service::Allocate => {
                let sizes = *lanes(self.program, warp, &fragment.frame, mask).double(op.s[0]);
                let mut addresses = [0; WIDTH];
                for lane in active(mask) {
                    addresses[lane] = if sizes[lane] == 0 {
                        0
                    } else {
                        self.host.allocate(sizes[lane]).unwrap_or(0)
                    };
                }
                lanes(self.program, warp, &fragment.frame, mask).set_double(op.d[0], &addresses);
                Ok(())
            }
            Service::Free => {
                let addresses = *lanes(self.program, warp, &fragment.frame, mask).double(op.s[0]);
                for lane in active(mask) {
                    if addresses[lane] != 0 && !self.host.free(addresses[lane]) {
                        let why = "`free` of an address that `malloc` did not give".to_owned();
                        let cause = Cause::IllegalAddress { kind: Kind::Write, why };
                        return Err(Blocked::trap(lane, Some(addresses[lane]), cause));
                    }
                }
                Ok(())
            }
            Service::Assert => self.assert(common, warp, fragment, op, mask),
            Service::SetCondition => {
                let registers = lanes(self.program, warp, &fragment.frame, mask);
                let (handles, values) = (*registers.double(op.s[0]), *registers.word(op.s[1]));
                for lane in active(mask) {
                    self.host.set_condition(handles[lane], values[lane]);
                }
                Ok(())
            }
        }
    }

    fn print(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        mask: u32,
    ) -> Result<(), Blocked> {
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let (formats, arguments) = (*registers.double(op.s[0]), *registers.double(op.s[1]));
        // All texts are made before the first is printed: a lane may have to wait for its strings.
        let (mut texts, mut counts) = (Vec::new(), [0; WIDTH]);
        for lane in active(mask) {
            let mut view = Lane { engine: self, common, warp, fragment, lane };
            let (text, count) = view.formatted(formats[lane], arguments[lane])?;
            counts[lane] = count;
            texts.push(text);
        }
        for text in texts {
            self.host.print(&text);
        }
        if fragment.mask != 0 {
            lanes(self.program, warp, &fragment.frame, mask).set_word(op.d[0], &counts);
        }
        Ok(())
    }

    fn assert(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        mask: u32,
    ) -> Result<(), Blocked> {
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let [message, file, function] =
            [op.s[0], op.s[1], op.s[3]].map(|slot| *registers.double(slot));
        let line = *registers.word(op.s[2]);
        let mut failures = Vec::new();
        for lane in active(mask) {
            let thread = Common::thread(&self.rules.shape, warp.index, lane as u32);
            let block = common.coordinates;
            let mut view = Lane { engine: self, common, warp, fragment, lane };
            let mut text = |address| {
                view.text(address).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            };
            failures.push(AssertFailure {
                message: text(message[lane])?,
                file: text(file[lane])?,
                line: line[lane],
                function: text(function[lane])?,
                block,
                thread,
            });
        }
        for failure in &failures {
            self.host.assert_failed(failure);
        }
        Err(Blocked::trap(super::engine::first(mask), None, Cause::Assert))
    }
}
