//! Video instructions on two or four lanes of a word: `vadd4`, `vabsdiff2` and their kin.

/// The operation on each pair of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `vadd`
    Add,
    /// `vsub`
    Subtract,
    /// `vavrg`: half of the sum; a sum that is not negative is rounded up.
    Average,
    /// `vabsdiff`
    Difference,
    /// `vmin`
    Min,
    /// `vmax`
    Max,
}

/// A form of a video instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// The operation.
    pub operation: Operation,
    /// The bits of a lane: 8 or 16.
    pub bits: u32,
    /// Whether the lanes of `d`, `a` and `b` are signed.
    pub signed: [bool; 3],
    /// `.sat`: a result outside of its lane is the nearest one inside.
    pub saturate: bool,
    /// `.add`: the results are added to the third operand.
    pub accumulate: bool,
}

/// The lanes of `a` and `b` under the operation; with `.add`, their sum plus `c`.
#[must_use]
pub fn apply(form: Form, a: u32, b: u32, c: u32) -> u32 {
    let bits = form.bits;
    let least_unused = 64 - bits;
    let lane = |word: u32, at: u32, signed: bool| {
        let moved = u64::from(word >> at) << least_unused;
        if signed { moved.cast_signed() >> least_unused } else { (moved >> least_unused) as i64 }
    };
    let [to, of_a, of_b] = form.signed;
    let (least, most) =
        if to { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    let (mut packed, mut sum) = (0, c);
    for at in (0..32).step_by(bits as usize) {
        let (a, b) = (lane(a, at, of_a), lane(b, at, of_b));
        let result: i64 = match form.operation {
            Operation::Add => a + b,
            Operation::Subtract => a - b,
            Operation::Average => (a + b + i64::from(a + b >= 0)) >> 1,
            Operation::Difference => (a - b).abs(),
            Operation::Min => a.min(b),
            Operation::Max => a.max(b),
        };
        let result = if form.saturate { result.clamp(least, most) } else { result };
        packed |= (result as u32 & ((1 << bits) - 1)) << at;
        sum = sum.wrapping_add(result as u32);
    }
    if form.accumulate { sum } else { packed }
}

#[cfg(test)]
mod tests {
    use super::{Form, Operation, apply};

    fn form(operation: Operation, signed: bool) -> Form {
        Form { operation, bits: 8, signed: [signed; 3], saturate: false, accumulate: false }
    }

    #[test]
    fn lanes_do_not_reach_their_neighbours() {
        let add = form(Operation::Add, false);
        assert_eq!(apply(add, 0x01ff_80ff, 0x0101_8002, 0), 0x0200_0001);
        assert_eq!(apply(Form { bits: 16, ..add }, 0x0001_ffff, 0x0001_0002, 0), 0x0002_0001);
    }

    #[test]
    fn saturated_lanes_stay_at_their_ends() {
        let unsigned = Form { saturate: true, ..form(Operation::Subtract, false) };
        assert_eq!(apply(unsigned, 0x0510_00ff, 0x0611_0101, 0), 0x0000_00fe);
        let signed = Form { saturate: true, ..form(Operation::Add, true) };
        assert_eq!(apply(signed, 0x7f80_ff01, 0x01ff_0101, 0), 0x7f80_0002);
    }

    #[test]
    fn differences_are_summed_with_the_third_operand() {
        let sum = Form { accumulate: true, ..form(Operation::Difference, false) };
        assert_eq!(apply(sum, 0x0102_03ff, 0x0201_0300, 10), 267);
    }

    #[test]
    fn averages_round_up_unless_the_sum_is_negative() {
        let average = form(Operation::Average, true);
        assert_eq!(apply(average, 0x01ff_fd00, 0x02ff_0000, 0), 0x02ff_fe00);
    }
}
