//! Operands of the instruction forms: edge cases crossed, then seeded random ones.
//!
//! `conformance/operands.py` makes the same list. Operands are therefore not recorded.

const F32: [u64; 26] = [
    0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000, 0x00000001,
    0x7f7fffff, 0x80800000, 0xffa00001, 0x807fffff, 0x00800000, 0x3f7fffff, 0x3f800001, 0x40490fdb,
    0x3eaaaaab, 0x4b800001, 0xcf000000, 0x00ffffff, 0x3f000000, 0xc0200000, 0x5f800000, 0x7fffffff,
    0x7f000000, 0x80000001,
];

const F64: [u64; 26] = [
    0x0000000000000000,
    0x8000000000000000,
    0x3ff0000000000000,
    0xbff0000000000000,
    0x7ff0000000000000,
    0xfff0000000000000,
    0x7ff8000000000000,
    0x0000000000000001,
    0x7fefffffffffffff,
    0x8010000000000000,
    0xfff4000000000001,
    0x800fffffffffffff,
    0x0010000000000000,
    0x3fefffffffffffff,
    0x3ff0000000000001,
    0x400921fb54442d18,
    0x3fd5555555555555,
    0x4340000000000001,
    0xc1e0000000000000,
    0x3810000000000000,
    0x36a0000000000000,
    0xc004000000000000,
    0x47effffff0000000,
    0x380fffffffffffff,
    0x43f0000000000000,
    0x8000000000000001,
];

const F16: [u64; 26] = [
    0x0000, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0x0001, 0x7bff, 0x8400, 0xfd01, 0x83ff,
    0x0400, 0x3bff, 0x3c01, 0x4248, 0x3555, 0x6801, 0xf800, 0x07ff, 0x3800, 0xc100, 0x7800, 0x7fff,
    0x7c01, 0x8001,
];

const BF16: [u64; 26] = [
    0x0000, 0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0x0001, 0x7f7f, 0x8080, 0xffa1, 0x807f,
    0x0080, 0x3f7f, 0x3f81, 0x4049, 0x3eab, 0x4b81, 0xcf00, 0x00ff, 0x3f00, 0xc020, 0x5f80, 0x7fff,
    0x7f00, 0x8001,
];

const INTEGERS: [u64; 26] = [
    0x0000000000000000,
    0x0000000000000001,
    0xffffffffffffffff,
    0x8000000000000000,
    0x7fffffffffffffff,
    0x0000000000000002,
    0x0000000000000007,
    0x00000000ffffffff,
    0x0000000080000000,
    0xfffffffffffffffe,
    0x000000007fffffff,
    0x00000000000000ff,
    0x0000000000000080,
    0x000000000000007f,
    0x0000000000008000,
    0x0000000000007fff,
    0x000000000000ffff,
    0x0000000100000001,
    0x0000000000ffffff,
    0x0000000000800000,
    0x0000000001000001,
    0x0000000000000003,
    0x000000000000001f,
    0x0000000000000020,
    0x5555555555555555,
    0xffffffffffffff80,
];

const SHIFTS: [u64; 26] = [
    0x00000000, 0x00000001, 0x0000001f, 0x00000020, 0x00000021, 0x0000003f, 0x00000040, 0x00000008,
    0x000000ff, 0x00000100, 0xffffffff, 0x00000010, 0x0000001e, 0x0000003e, 0x00000041, 0x00000007,
    0x00000018, 0x00000004, 0x0000000c, 0x00000080, 0x80000000, 0x00000005, 0x00000030, 0x00000064,
    0x00000101, 0x00000002,
];

/// The bits of an operand of a kind.
pub(crate) fn bits(kind: &str) -> u32 {
    match kind {
        "b8" => 8,
        "f16" | "bf16" | "b16" => 16,
        "f64" | "b64" | "near64" | "nan64" => 64,
        _ => 32,
    }
}

/// The low bits of a number.
fn low(value: u64, bits: u32) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

/// The edge cases of a kind.
fn edges(kind: &str) -> Vec<u64> {
    let pairs = |one: [u64; 26]| (0..26).map(|i| one[i] | one[(i * 7 + 3) % 26] << 16).collect();
    match kind {
        "f32" => F32.to_vec(),
        "f64" => F64.to_vec(),
        "f16" => F16.to_vec(),
        "bf16" => BF16.to_vec(),
        "f16x2" => pairs(F16),
        "bf16x2" => pairs(BF16),
        "shift" => SHIFTS.to_vec(),
        _ => INTEGERS.iter().map(|value| low(*value, bits(kind))).collect(),
    }
}

/// SplitMix64, seeded by the first word of a form and its kinds (FNV-1a).
struct Random(u64);

impl Random {
    fn new(seed: &str) -> Self {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Self(seed.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A float with an exponent near that of one.
    fn near(&mut self, bits: u32, fraction: u32, bias: u64, spread: u64) -> u64 {
        let r = self.next();
        let exponent = bias - spread + (r >> 56) % (2 * spread + 1);
        (r >> 55 & 1) << (bits - 1) | exponent << fraction | low(r, fraction)
    }

    /// One random operand.
    fn draw(&mut self, kind: &str) -> u64 {
        match kind {
            "lane" => return self.next() & 31,
            "near16" => return self.near(16, 10, 15, 3) | self.near(16, 10, 15, 3) << 16,
            "nearb16" => return self.near(16, 7, 127, 6) | self.near(16, 7, 127, 6) << 16,
            "near32" => return self.near(32, 23, 127, 6),
            "near64" => return self.near(64, 52, 1023, 6),
            "nan64" => {
                let (sign, special) = (self.next() & 1 << 63, self.next() & 3);
                let nan = 0x7ff0_0000_0000_0000 | self.next() >> 12;
                let of = [nan, 0x7ff0_0000_0000_0000, 0, 0x3ff0_0000_0000_0000];
                return sign | of[special as usize];
            }
            _ => {}
        }
        let choice = (self.next() & 3) as usize;
        match (kind, choice) {
            ("f32", 1..) => return self.near(32, 23, 127, [2, 12, 40][choice - 1]),
            ("f64", 1..) => return self.near(64, 52, 1023, [2, 20, 70][choice - 1]),
            ("f16", 1..) => return self.near(16, 10, 15, [2, 5, 14][choice - 1]),
            ("bf16", 1..) => return self.near(16, 7, 127, [2, 6, 20][choice - 1]),
            ("f16x2", _) => return self.draw("f16") | self.draw("f16") << 16,
            ("bf16x2", _) => return self.draw("bf16") | self.draw("bf16") << 16,
            _ => {}
        }
        let value = self.next() >> (64 - bits(kind));
        match (kind, choice) {
            ("shift", _) => value & 63,
            ("b8" | "b16" | "b32" | "b64", 3) => value >> (self.next() % u64::from(bits(kind))),
            _ => value,
        }
    }
}

/// The bits of a type of floats, those of its fraction, and the bias of its exponent; then the least and
/// the greatest exponent of the next narrower type.
fn float(kind: &str) -> Option<(u32, u32, u64, [u64; 2])> {
    Some(match kind {
        "f16" => (16, 10, 15, [9, 23]),
        "bf16" => (16, 7, 127, [113, 142]),
        "f32" => (32, 23, 127, [113, 142]),
        "f64" => (64, 52, 1023, [897, 1150]),
        _ => return None,
    })
}

impl Random {
    /// A float from which, or with which, a result is near the least normal number or the greatest one.
    fn near_limits(&mut self, kind: &str) -> u64 {
        if let Some(half) = kind.strip_suffix("x2") {
            return self.near_limits(half) | self.near_limits(half) << 16;
        }
        let Some((bits, fraction, bias, [least, greatest])) = float(kind) else {
            return self.draw(kind);
        };
        let r = self.next();
        let few = (r >> 8) % 5;
        let middle = bias.div_ceil(2) + few - 2;
        let exponent = match r & 7 {
            0 | 5 => few,
            1 | 2 => middle,
            3 => bias + bias / 2 + few - 2,
            4 => bias + few - 2,
            6 => least + 2 - (r >> 8) % u64::from(fraction),
            _ => greatest + few - 2,
        };
        let all = low(u64::MAX, fraction);
        let any = self.next() & all;
        let tail = match r >> 16 & 3 {
            0 => any,
            1 => 0,
            2 => all,
            _ => 1 << (any % u64::from(fraction)),
        };
        (r >> 32 & 1) << (bits - 1) | exponent << fraction | tail
    }
}

/// The operands of each of so many cases of a form.
pub(crate) fn cases(body: &str, kinds: &[&str], total: usize) -> Vec<Vec<u64>> {
    let word = body.split('.').next().unwrap_or_default();
    let mut random = Random::new(&format!("{word} {}", kinds.join(" ")));
    let crossed: usize = [0, 26, 22, 9].get(kinds.len()).copied().unwrap_or(0);
    let edge_cases = crossed.pow(kinds.len() as u32);
    let mut found = Vec::new();
    if edge_cases <= total && !kinds.iter().any(|kind| matches!(*kind, "lane" | "nan64")) {
        let lists: Vec<_> = kinds.iter().map(|kind| edges(kind)).collect();
        for mut n in 0..edge_cases {
            let mut case = Vec::new();
            for list in &lists {
                case.push(list[n % crossed]);
                n /= crossed;
            }
            found.push(case);
        }
    }
    let is_float = kinds.iter().any(|kind| float(kind.trim_end_matches("x2")).is_some());
    let of_limits = if crossed > 0 && is_float { (total - found.len()) / 2 } else { 0 };
    while found.len() < total - of_limits {
        found.push(kinds.iter().map(|kind| random.draw(kind)).collect());
    }
    while found.len() < total {
        found.push(kinds.iter().map(|kind| random.near_limits(kind)).collect());
    }
    found
}
