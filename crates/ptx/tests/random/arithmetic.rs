//! Instructions without control flow.

use super::Writer;

const ROUNDINGS: [&str; 4] = ["rn", "rz", "rm", "rp"];
const COMPARISONS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];

impl Writer {
    /// One piece of arithmetic.
    pub(super) fn arithmetic(&mut self) {
        match self.random.below(20) {
            0..=3 => self.two_words(),
            4..=6 => self.bit_fields(),
            7..=8 => self.longs(),
            9 => self.carries(),
            10 => self.divisions(),
            11 => self.narrow(),
            12..=13 => self.floats(),
            14 => self.doubles(),
            15 => self.halves(),
            16 => self.conversions(),
            17 => self.comparisons(),
            18 => self.selections(),
            _ => self.local_row(),
        }
    }

    fn two_words(&mut self) {
        const FORMS: [&str; 24] = [
            "add.u32",
            "sub.u32",
            "add.s32",
            "mul.lo.u32",
            "mul.hi.u32",
            "mul.hi.s32",
            "and.b32",
            "or.b32",
            "xor.b32",
            "shl.b32",
            "shr.u32",
            "shr.s32",
            "min.s32",
            "max.s32",
            "min.u32",
            "max.u32",
            "add.sat.s32",
            "sub.sat.s32",
            "mul24.lo.u32",
            "mul24.hi.s32",
            "mul24.lo.s32",
            "add.u32",
            "xor.b32",
            "sub.s32",
        ];
        let form = self.random.of(&FORMS);
        let (to, a, b) = (self.register('r'), self.register('r'), self.word());
        self.line(&format!("{form} {to}, {a}, {b}"));
    }

    fn bit_fields(&mut self) {
        let (to, a, b, c) = (self.register('r'), self.register('r'), self.word(), self.word());
        match self.random.below(14) {
            0 => {
                let form = self.random.of(&[
                    "popc.b32",
                    "clz.b32",
                    "brev.b32",
                    "not.b32",
                    "neg.s32",
                    "abs.s32",
                    "cnot.b32",
                    "bfind.u32",
                    "bfind.s32",
                    "bfind.shiftamt.u32",
                ]);
                self.line(&format!("{form} {to}, {a}"));
            }
            1 => {
                let form = self.random.of(&["bfe.u32", "bfe.s32"]);
                let (from, bits) = (self.register('r'), self.register('r'));
                self.line(&format!("{form} {to}, {a}, {from}, {bits}"));
            }
            2 => {
                let form = self.random.of(&["bfe.u32", "bfe.s32"]);
                let (from, bits) = (self.random.below(32), self.random.below(40));
                self.line(&format!("{form} {to}, {a}, {from}, {bits}"));
            }
            3 => {
                let form = self.random.of(&[
                    "shf.l.wrap.b32",
                    "shf.r.clamp.b32",
                    "shf.l.clamp.b32",
                    "shf.r.wrap.b32",
                    "sad.u32",
                    "sad.s32",
                ]);
                self.line(&format!("{form} {to}, {a}, {b}, {c}"));
            }
            4 => {
                let (from, bits) = (self.register('r'), self.register('r'));
                self.line(&format!("bfi.b32 {to}, {a}, {b}, {from}, {bits}"));
            }
            5 => {
                let mode = self.random.of(&["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"]);
                self.line(&format!("prmt.b32{mode} {to}, {a}, {b}, {c}"));
            }
            6 | 7 => {
                let table = self.random.below(256);
                self.line(&format!("lop3.b32 {to}, {a}, {b}, {c}, {table:#x}"));
            }
            8 => {
                let form = self.random.of(&[
                    "dp4a.u32.u32",
                    "dp4a.s32.s32",
                    "dp4a.u32.s32",
                    "dp2a.lo.s32.u32",
                    "dp2a.hi.u32.u32",
                ]);
                self.line(&format!("{form} {to}, {a}, {b}, {c}"));
            }
            9 => {
                let form = self.random.of(&["szext.wrap.u32", "szext.clamp.s32"]);
                self.line(&format!("{form} {to}, {a}, {b}"));
            }
            10 => {
                let form = self.random.of(&["bmsk.wrap.b32", "bmsk.clamp.b32"]);
                self.line(&format!("{form} {to}, {a}, {b}"));
            }
            _ => {
                let form =
                    self.random.of(&["mad.lo.u32", "mad.hi.s32", "mad.hi.u32", "mad24.lo.s32"]);
                self.line(&format!("{form} {to}, {a}, {b}, {c}"));
            }
        }
    }

    fn longs(&mut self) {
        let (to, a, b) = (self.register('d'), self.register('d'), self.long());
        let (word, other) = (self.register('r'), self.word());
        match self.random.below(8) {
            0 => {
                let form = self.random.of(&["shl.b64", "shr.u64", "shr.s64"]);
                self.line(&format!("{form} {to}, {a}, {other}"));
            }
            1 => {
                let form = self.random.of(&["mul.wide.u32", "mul.wide.s32"]);
                self.line(&format!("{form} {to}, {word}, {other}"));
            }
            2 => {
                let form = self.random.of(&["popc.b64", "clz.b64", "bfind.u64", "bfind.s64"]);
                self.line(&format!("{form} {word}, {a}"));
            }
            3 => {
                let form = self.random.of(&["mad.lo.u64", "mad.hi.u64"]);
                let c = self.long();
                self.line(&format!("{form} {to}, {a}, {b}, {c}"));
            }
            4 => {
                let (from, bits) = (self.random.below(64), self.random.below(70));
                let form = self.random.of(&["bfe.u64", "bfe.s64"]);
                self.line(&format!("{form} {to}, {a}, {from}, {bits}"));
            }
            _ => {
                let form = self.random.of(&[
                    "add.u64",
                    "sub.s64",
                    "mul.lo.u64",
                    "mul.hi.u64",
                    "mul.hi.s64",
                    "and.b64",
                    "or.b64",
                    "xor.b64",
                    "min.s64",
                    "max.u64",
                ]);
                self.line(&format!("{form} {to}, {a}, {b}"));
            }
        }
    }

    /// A sum or difference of 96 bits.
    fn carries(&mut self) {
        let form = self.random.of(&["add", "sub"]);
        let words: Vec<String> = (0..6).map(|_| self.register('r')).collect();
        self.line(&format!("{form}.cc.u32 %t0, {}, {}", words[0], words[1]));
        self.line(&format!("{form}c.cc.u32 %t1, {}, {}", words[2], words[3]));
        self.line(&format!("{form}c.u32 %t2, {}, {}", words[4], words[5]));
        for (k, word) in words[..3].iter().enumerate() {
            self.line(&format!("mov.b32 {word}, %t{k}"));
        }
    }

    /// The divisor is odd and positive.
    fn divisions(&mut self) {
        let (to, a, b) = (self.register('r'), self.register('r'), self.register('r'));
        let form = self.random.of(&["div", "rem"]);
        let kind = self.random.of(&["u32", "s32", "u64", "s64", "s16"]);
        self.line(&format!("and.b32 %t0, {b}, 0x7fffffff"));
        self.line("or.b32 %t0, %t0, 1");
        match kind {
            "u32" | "s32" => self.line(&format!("{form}.{kind} {to}, {a}, %t0")),
            "s16" => {
                self.line("and.b32 %t0, %t0, 0x7fff");
                self.line("cvt.u16.u32 %q0, %t0");
                self.line(&format!("cvt.u16.u32 %q1, {a}"));
                self.line(&format!("{form}.s16 %q0, %q1, %q0"));
                self.line(&format!("cvt.s32.s16 {to}, %q0"));
            }
            _ => {
                let (to, a) = (self.register('d'), self.register('d'));
                self.line("cvt.u64.u32 %a1, %t0");
                let factor = 2 * self.random.below(1000) + 1;
                self.line(&format!("mul.lo.u64 %a1, %a1, {factor}"));
                self.line(&format!("{form}.{kind} {to}, {a}, %a1"));
            }
        }
    }

    /// Arithmetic of 16 bits and conversions to narrow types.
    fn narrow(&mut self) {
        let (to, a, b) = (self.register('r'), self.register('r'), self.register('r'));
        let form = self.random.of(&[
            "add.s16",
            "sub.u16",
            "mul.lo.s16",
            "mul.hi.u16",
            "min.s16",
            "max.u16",
            "shl",
            "shr.s16",
            "and.b16",
            "xor.b16",
        ]);
        let out = self.random.of(&["cvt.u32.u16", "cvt.s32.s16", "cvt.s32.s8", "cvt.u32.u8"]);
        self.line(&format!("cvt.u16.u32 %q0, {a}"));
        self.line(&format!("cvt.sat.s16.s32 %q1, {b}"));
        if form == "shl" {
            self.line(&format!("shl.b16 %q0, %q1, {b}"));
        } else if form == "shr.s16" {
            self.line(&format!("shr.s16 %q0, %q0, {b}"));
        } else {
            self.line(&format!("{form} %q0, %q0, %q1"));
        }
        self.line(&format!("{out} {to}, %q0"));
    }

    fn floats(&mut self) {
        let (to, a, b, c) = (self.register('f'), self.register('f'), self.float(), self.float());
        let rounding = self.random.of(&ROUNDINGS);
        let flush = self.random.of(&["", "", ".ftz"]);
        let saturate = self.random.of(&["", "", "", ".sat"]);
        match self.random.below(9) {
            0..=2 => {
                let form = self.random.of(&["add", "sub", "mul"]);
                self.line(&format!("{form}.{rounding}{flush}{saturate}.f32 {to}, {a}, {b}"));
            }
            3 | 4 => self.line(&format!("fma.{rounding}{flush}{saturate}.f32 {to}, {a}, {b}, {c}")),
            5 => {
                let form = self.random.of(&["min", "max", "min.NaN", "max.NaN"]);
                let (form, nan) =
                    form.split_once('.').map_or((form, ""), |(form, _)| (form, ".NaN"));
                self.line(&format!("{form}{flush}{nan}.f32 {to}, {a}, {b}"));
            }
            6 => self.line(&format!("div.{rounding}{flush}.f32 {to}, {a}, {b}")),
            7 => {
                self.line(&format!("abs.f32 {to}, {a}"));
                self.line(&format!("sqrt.{rounding}{flush}.f32 {to}, {to}"));
            }
            _ => {
                let form = self.random.of(&["neg", "abs"]);
                self.line(&format!("{form}{flush}.f32 {to}, {a}"));
            }
        }
    }

    fn doubles(&mut self) {
        let (to, a, b, c) =
            (self.register('g'), self.register('g'), self.register('g'), self.register('g'));
        let rounding = self.random.of(&ROUNDINGS);
        match self.random.below(6) {
            0 | 1 => {
                let form = self.random.of(&["add", "sub", "mul"]);
                self.line(&format!("{form}.{rounding}.f64 {to}, {a}, {b}"));
            }
            2 => self.line(&format!("fma.{rounding}.f64 {to}, {a}, {b}, {c}")),
            3 => {
                let form = self.random.of(&["min", "max"]);
                self.line(&format!("{form}.f64 {to}, {a}, {b}"));
            }
            4 => self.line(&format!("div.{rounding}.f64 {to}, {a}, {b}")),
            _ => {
                self.line(&format!("abs.f64 {to}, {a}"));
                self.line(&format!("sqrt.{rounding}.f64 {to}, {to}"));
            }
        }
    }

    fn halves(&mut self) {
        let (to, a, b, c) =
            (self.register('h'), self.register('h'), self.register('h'), self.register('h'));
        match self.random.below(5) {
            0 | 1 => {
                let form = self.random.of(&["add", "sub", "mul"]);
                let saturate = self.random.of(&["", ".sat"]);
                self.line(&format!("{form}.rn{saturate}.f16 {to}, {a}, {b}"));
            }
            2 => self.line(&format!("fma.rn.f16 {to}, {a}, {b}, {c}")),
            3 => {
                let float = self.register('f');
                self.line(&format!("cvt.rn.f16.f32 {to}, {float}"));
            }
            _ => {
                let float = self.register('f');
                self.line(&format!("cvt.f32.f16 {float}, {a}"));
            }
        }
    }

    fn conversions(&mut self) {
        let (word, long, float, double) =
            (self.register('r'), self.register('d'), self.register('f'), self.register('g'));
        let rounding = self.random.of(&ROUNDINGS);
        let whole = self.random.of(&["rni", "rzi", "rmi", "rpi"]);
        match self.random.below(12) {
            0 => self.line(&format!("cvt.{whole}.s32.f32 {word}, {float}")),
            1 => self.line(&format!("cvt.{whole}.u32.f32 {word}, {float}")),
            2 => self.line(&format!("cvt.{whole}.s64.f32 {long}, {float}")),
            3 => self.line(&format!("cvt.{whole}.s32.f64 {word}, {double}")),
            4 => self.line(&format!("cvt.{whole}.u64.f64 {long}, {double}")),
            5 => self.line(&format!("cvt.{rounding}.f32.s32 {float}, {word}")),
            6 => self.line(&format!("cvt.{rounding}.f32.u64 {float}, {long}")),
            7 => self.line(&format!("cvt.{rounding}.f64.s64 {double}, {long}")),
            8 => self.line(&format!("cvt.f64.f32 {double}, {float}")),
            9 => self.line(&format!("cvt.{rounding}.f32.f64 {float}, {double}")),
            10 => self.line(&format!("cvt.{whole}.f32.f32 {float}, {float}")),
            _ => {
                let form = self.random.of(&[
                    "cvt.u32.u64",
                    "cvt.s64.s32",
                    "cvt.u64.u32",
                    "cvt.sat.s32.s64",
                    "cvt.sat.u32.s64",
                    "cvt.s32.s8",
                    "cvt.u32.u16",
                ]);
                match form {
                    "cvt.s64.s32" | "cvt.u64.u32" => self.line(&format!("{form} {long}, {word}")),
                    "cvt.s32.s8" | "cvt.u32.u16" => {
                        self.line(&format!("{form} {word}, {word}"));
                    }
                    _ => self.line(&format!("{form} {word}, {long}")),
                }
            }
        }
    }

    pub(super) fn comparisons(&mut self) {
        let (p, q, c) = (self.register('p'), self.register('p'), self.register('p'));
        let compare = self.random.of(&COMPARISONS);
        match self.random.below(6) {
            0 | 1 => {
                let kind = self.random.of(&["s32", "u32"]);
                let (a, b) = (self.register('r'), self.word());
                self.line(&format!("setp.{compare}.{kind} {p}, {a}, {b}"));
            }
            2 => {
                let compare =
                    self.random.of(&["eq", "ltu", "leu", "gt", "geu", "neu", "num", "nan"]);
                let (a, b) = (self.register('f'), self.float());
                self.line(&format!("setp.{compare}.f32 {p}, {a}, {b}"));
            }
            3 => {
                let (a, b) = (self.register('d'), self.long());
                self.line(&format!("setp.{compare}.s64 {p}, {a}, {b}"));
            }
            4 => {
                let join = self.random.of(&["and", "or", "xor"]);
                let (a, b) = (self.register('r'), self.word());
                let not = self.random.of(&["", "!"]);
                self.line(&format!("setp.{compare}.{join}.s32 {p}, {a}, {b}, {not}{c}"));
            }
            _ => {
                let form = self.random.of(&["and", "or", "xor"]);
                self.line(&format!("{form}.pred {p}, {q}, {c}"));
            }
        }
    }

    fn selections(&mut self) {
        let (to, a, b, p) = (self.register('r'), self.word(), self.word(), self.register('p'));
        let not = self.random.of(&["", "!"]);
        match self.random.below(5) {
            0 => self.line(&format!("selp.b32 {to}, {a}, {b}, {p}")),
            1 => {
                let (to, a, b) = (self.register('f'), self.float(), self.float());
                self.line(&format!("selp.f32 {to}, {a}, {b}, {p}"));
            }
            2 => {
                let sign = self.register('r');
                self.line(&format!("slct.u32.s32 {to}, {a}, {b}, {sign}"));
            }
            3 => {
                let first = self.register('r');
                self.line(&format!("set.lt.u32.s32 {to}, {first}, {b}"));
            }
            _ => {
                let from = self.register('r');
                self.line(&format!("@{not}{p} add.u32 {to}, {from}, {b}"));
            }
        }
    }

    /// A store and a load at places of the thread's row.
    fn local_row(&mut self) {
        let (index, to, value) = (self.register('r'), self.register('r'), self.register('r'));
        self.line(&format!("and.b32 %t0, {index}, 15"));
        self.line("mov.u32 %t1, row");
        self.line("mad.lo.u32 %t1, %t0, 4, %t1");
        self.line(&format!("st.local.u32 [%t1], {value}"));
        let (at, kind) = *[(0u32, "u8"), (2, "s16"), (8, "u32"), (60, "u32"), (33, "s8")]
            .get(self.random.below(5) as usize)
            .unwrap_or(&(0, "u8"));
        self.line(&format!("ld.local.{kind} {to}, [row+{at}]"));
    }
}
