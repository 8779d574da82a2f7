//! Random kernels: PTX text by seed, for comparison with a GPU.
//!
//! Each kernel has 64 threads in one block, reads 256 words, and writes all of its registers. Every
//! loop ends, every access is in bounds, and no result depends on the order of threads. Each
//! rounding is written out, so that no compiler joins a product and a sum. No `bfe` has a constant
//! position beyond its number: `ptxas` 13.0 makes -1 of `bfe.s32 d, a, 37, 1`, whatever `a` is.

mod arithmetic;
mod control;

/// Threads of the block.
pub(crate) const THREADS: u32 = 64;
/// Words of the input.
pub(crate) const INPUT_WORDS: usize = 256;
/// Bytes that each thread writes.
pub(crate) const THREAD_BYTES: u32 = 128;

/// Registers of each type: `%r`, `%d`, `%f`, `%g`, `%h` and `%p`.
const WORDS: u32 = 10;
const DOUBLE_WORDS: u32 = 5;
const FLOATS: u32 = 5;
const DOUBLES: u32 = 3;
const HALVES: u32 = 3;
const PREDICATES: u32 = 4;

/// The splitmix64 sequence.
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end)) as u32
    }

    /// One of several texts.
    fn of<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.below(texts.len() as u32) as usize]
    }
}

/// A kernel that is being written.
struct Writer {
    random: Random,
    text: String,
    labels: u32,
    /// How many blocks of divergent code the place is in.
    depth: u32,
}

impl Writer {
    fn line(&mut self, line: &str) {
        self.text.push_str("    ");
        self.text.push_str(line);
        self.text.push_str(";\n");
    }

    fn label(&mut self, name: &str) {
        self.text.push_str(name);
        self.text.push_str(":\n");
    }

    fn new_label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    /// A register of a type.
    fn register(&mut self, prefix: char) -> String {
        let count = match prefix {
            'r' => WORDS,
            'd' => DOUBLE_WORDS,
            'f' => FLOATS,
            'g' => DOUBLES,
            'h' => HALVES,
            _ => PREDICATES,
        };
        format!("%{prefix}{}", self.random.below(count))
    }

    /// A word: a register, or sometimes a number.
    fn word(&mut self) -> String {
        if self.random.below(4) > 0 {
            return self.register('r');
        }
        match self.random.below(3) {
            0 => format!("{}", self.random.below(40)),
            1 => format!("{:#x}", self.random.next() as u32),
            _ => {
                (*self.random.of(&["-1", "0x80000000", "0x7fffffff", "255", "0xffff"])).to_string()
            }
        }
    }

    /// A number of 64 bits: a register, or sometimes a literal.
    fn long(&mut self) -> String {
        match self.random.below(5) {
            0 => format!("{:#x}", self.random.next() >> self.random.below(60)),
            _ => self.register('d'),
        }
    }

    /// A float: a register, or sometimes a literal.
    fn float(&mut self) -> String {
        match self.random.below(8) {
            0 => format!(
                "0f{:08X}",
                self.random.below(1 << 23) | (100 + self.random.below(60)) << 23
            ),
            1 => (*self.random.of(&[
                "0f00000000",
                "0f80000000",
                "0f3F800000",
                "0f00000001",
                "0f7F7FFFFF",
            ]))
            .to_string(),
            _ => self.register('f'),
        }
    }
}

/// The text of the kernel `random` of a seed.
pub(crate) fn kernel(seed: u64) -> String {
    let mut writer = Writer {
        random: Random::new(seed ^ 0x7061_6765),
        text: String::new(),
        labels: 0,
        depth: 0,
    };
    writer.begin();
    for _ in 0..14 {
        writer.statement();
    }
    writer.end();
    writer.text
}

impl Writer {
    fn begin(&mut self) {
        self.text.push_str(
            ".version 8.0\n.target sm_80\n.address_size 64\n\
             .visible .entry random(.param .u64 in, .param .u64 out)\n{\n    \
             .reg .b32 %r<10>, %t<6>;\n    .reg .b64 %d<5>, %in, %out, %a<3>;\n    \
             .reg .f32 %f<5>;\n    .reg .f64 %g<3>;\n    .reg .b16 %h<3>, %q<2>;\n    \
             .reg .pred %p<4>, %k<2>;\n    .shared .align 16 .b8 exchange[512];\n    \
             .local .align 8 .b8 row[64];\n",
        );
        for line in ["ld.param.u64 %in, [in]", "ld.param.u64 %out, [out]", "mov.u32 %r0, %tid.x"] {
            self.line(line);
        }
        self.line("mad.wide.u32 %a0, %r0, 16, %in");
        self.line("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%a0]");
        for register in 5..WORDS {
            self.line(&format!(
                "mad.lo.u32 %r{register}, %r{}, {}, %r0",
                register - 4,
                2 * register + 1
            ));
        }
        for register in 0..DOUBLE_WORDS {
            self.line(&format!("mov.b64 %d{register}, {{%r{}, %r{}}}", register + 1, register + 3));
        }
        for register in 0..FLOATS {
            self.line(&format!("cvt.rn.f32.s32 %f{register}, %r{}", register + 1));
            self.line(&format!(
                "mul.rn.f32 %f{register}, %f{register}, 0f3{:01X}800000",
                2 * register
            ));
        }
        for register in 0..DOUBLES {
            self.line(&format!("cvt.rn.f64.s32 %g{register}, %r{}", register + 2));
            self.line(&format!("mul.rn.f64 %g{register}, %g{register}, 0d3EF0000000000000"));
        }
        for register in 0..HALVES {
            self.line(&format!("cvt.rn.f16.f32 %h{register}, %f{register}"));
        }
        for register in 0..PREDICATES {
            self.line(&format!("setp.gt.s32 %p{register}, %r{}, %r{}", register + 1, register + 4));
        }
        for at in 0..8 {
            self.line(&format!("st.local.u64 [row+{}], %d{}", 8 * at, at % 5));
        }
    }

    /// Stores every register. A float that is no number is stored as 7, whatever its bits.
    fn end(&mut self) {
        self.line("mov.u32 %t0, %tid.x");
        self.line(&format!("mad.wide.u32 %out, %t0, {THREAD_BYTES}, %out"));
        let mut at = 0;
        for register in 0..WORDS {
            self.line(&format!("st.global.u32 [%out+{at}], %r{register}"));
            at += 4;
        }
        for register in 0..DOUBLE_WORDS {
            self.line(&format!("st.global.u64 [%out+{at}], %d{register}"));
            at += 8;
        }
        for register in 0..DOUBLES {
            self.line(&format!("setp.nan.f64 %k0, %g{register}, %g{register}"));
            self.line(&format!("@%k0 mov.f64 %g{register}, 0d401C000000000000"));
            self.line(&format!("st.global.f64 [%out+{at}], %g{register}"));
            at += 8;
        }
        for register in 0..FLOATS {
            self.line(&format!("setp.nan.f32 %k0, %f{register}, %f{register}"));
            self.line(&format!("@%k0 mov.f32 %f{register}, 0f40E00000"));
            self.line(&format!("st.global.f32 [%out+{at}], %f{register}"));
            at += 4;
        }
        self.line("mov.u32 %t1, 0");
        for register in 0..PREDICATES {
            self.line(&format!("@%p{register} or.b32 %t1, %t1, {}", 1 << register));
        }
        self.line(&format!("st.global.u32 [%out+{at}], %t1"));
        self.line("ret");
        self.text.push_str("}\n");
    }
}
