//! Branches, loops, and what threads exchange.

use super::Writer;

impl Writer {
    /// One statement: arithmetic, or a branch or loop around more of it. What threads exchange is
    /// outside of both, so that all lanes take part.
    pub(super) fn statement(&mut self) {
        match self.random.below(12) {
            0 | 1 if self.depth < 3 => self.branch(),
            2 if self.depth < 3 => self.repeat(),
            3 if self.depth < 3 => self.choice(),
            4 | 5 if self.depth == 0 => self.exchange(),
            6 => self.load(),
            _ => {
                for _ in 0..3 {
                    self.arithmetic();
                }
            }
        }
    }

    fn inner(&mut self) {
        self.depth += 1;
        for _ in 0..1 + self.random.below(4) {
            self.statement();
        }
        self.depth -= 1;
    }

    /// `if` and perhaps `else`.
    fn branch(&mut self) {
        self.comparisons();
        let (other, end) = (self.new_label(), self.new_label());
        let (p, not) = (self.register('p'), self.random.of(&["", "!"]));
        self.line(&format!("@{not}{p} bra {other}"));
        self.inner();
        if self.random.below(2) == 0 {
            self.line(&format!("bra {end}"));
            self.label(&other);
            self.inner();
            self.label(&end);
        } else {
            self.label(&other);
        }
    }

    /// A loop of at most seven rounds, as many as three bits of a register say. A thread may leave
    /// it early.
    fn repeat(&mut self) {
        let (again, end) = (self.new_label(), self.new_label());
        let from = self.register('r');
        let counter = format!("%n{}", self.labels);
        let leaves = self.random.below(2) == 0;
        self.line(&format!(".reg .b32 {counter}"));
        self.line(&format!("and.b32 {counter}, {from}, 7"));
        self.label(&again);
        self.inner();
        if leaves {
            self.comparisons();
            let p = self.register('p');
            self.line(&format!("@{p} bra {end}"));
            self.arithmetic();
        }
        self.line(&format!("sub.s32 {counter}, {counter}, 1"));
        self.line(&format!("setp.gt.s32 %k0, {counter}, 0"));
        self.line(&format!("@%k0 bra {again}"));
        self.label(&end);
    }

    /// A branch by a table of four ways.
    fn choice(&mut self) {
        let labels: Vec<String> = (0..4).map(|_| self.new_label()).collect();
        let (end, table) = (self.new_label(), self.new_label());
        let from = self.register('r');
        self.line(&format!("and.b32 %t3, {from}, 3"));
        self.text.push_str(&format!("{table}: .branchtargets {};\n", labels.join(", ")));
        self.line(&format!("brx.idx %t3, {table}"));
        for (way, label) in labels.iter().enumerate() {
            self.label(label);
            self.inner();
            // The second way falls through to the third.
            if way != 1 {
                self.line(&format!("bra {end}"));
            }
        }
        self.label(&end);
    }

    /// A load at a random place of the input.
    fn load(&mut self) {
        let (index, to, long) = (self.register('r'), self.register('r'), self.register('d'));
        let (mask, form) = *[
            (255, "ld.global.u32"),
            (255, "ld.global.s8"),
            (254, "ld.global.u64"),
            (255, "ld.global.nc.u16"),
        ]
        .get(self.random.below(4) as usize)
        .unwrap_or(&(255, "ld.global.u32"));
        self.line(&format!("and.b32 %t0, {index}, {mask}"));
        self.line("mad.wide.u32 %a0, %t0, 4, %in");
        let to = if mask == 254 { long } else { to };
        self.line(&format!("{form} {to}, [%a0]"));
    }

    /// Votes, shuffles, reductions, and words through shared memory.
    fn exchange(&mut self) {
        let (to, from, other, p) =
            (self.register('r'), self.register('r'), self.word(), self.register('p'));
        match self.random.below(8) {
            0 => {
                let form = self.random.of(&["any", "all", "uni"]);
                let q = self.register('p');
                self.line(&format!("vote.sync.{form}.pred {q}, {p}, 0xffffffff"));
            }
            1 => self.line(&format!("vote.sync.ballot.b32 {to}, {p}, 0xffffffff")),
            2 | 3 => {
                let mode = self.random.of(&["up", "down", "bfly", "idx"]);
                let clamp = if mode == "up" {
                    self.random.of(&["0", "0x1800", "0x1000"])
                } else {
                    self.random.of(&["31", "0x181f", "0x101f"])
                };
                self.line(&format!(
                    "shfl.sync.{mode}.b32 {to}|{p}, {from}, {other}, {clamp}, 0xffffffff"
                ));
            }
            4 => {
                let form = self.random.of(&[
                    "add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32", "max.s32",
                ]);
                self.line(&format!("redux.sync.{form} {to}, {from}, 0xffffffff"));
            }
            5 => {
                self.line(&format!("and.b32 %t0, {from}, 5"));
                self.line(&format!("match.any.sync.b32 {to}, %t0, 0xffffffff"));
            }
            6 => {
                let form = self.random.of(&["popc.u32", "or.pred", "and.pred"]);
                if form == "popc.u32" {
                    self.line(&format!("bar.red.{form} {to}, 0, {p}"));
                } else {
                    let q = self.register('p');
                    self.line(&format!("bar.red.{form} {q}, 0, {p}"));
                }
            }
            _ => self.shared_words(&to, &from),
        }
    }

    /// Each thread stores a word, and loads the word of another one, or a sum by atomics.
    fn shared_words(&mut self, to: &str, from: &str) {
        self.line("mov.u32 %t0, %tid.x");
        self.line("mov.u32 %t1, exchange");
        self.line("mad.lo.u32 %t2, %t0, 4, %t1");
        self.line(&format!("st.shared.u32 [%t2], {from}"));
        self.line("st.shared.u32 [%t2+256], 0");
        self.line("bar.sync 0");
        let (index, value) = (self.register('r'), self.register('r'));
        self.line(&format!("and.b32 %t0, {index}, 63"));
        self.line("mad.lo.u32 %t2, %t0, 4, %t1");
        if self.random.below(2) == 0 {
            let form = self.random.of(&["add.u32", "max.u32", "xor.b32", "or.b32"]);
            self.line(&format!("red.shared.{form} [%t2+256], {value}"));
        }
        self.line("ld.shared.u32 %t4, [%t2]");
        self.line("bar.sync 0");
        self.line("ld.shared.u32 %t5, [%t2+256]");
        self.line("bar.sync 0");
        self.line(&format!("sub.u32 {to}, %t4, %t5"));
    }
}
