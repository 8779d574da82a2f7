"""The instruction forms: a body of PTX, the kinds of its operands, the sizes of its results.

A body reads `a0`, `a1`, … and writes `d0`, `d1`, …. Predicates `p` and `q`, a shared address `sa`
and a global address `ga` of 16 bytes for each thread, and the lane's number `lane` are there too.
"""

FORMS = []


def form(body, kinds, results):
    FORMS.append((body, kinds.split(), results.split()))


def op(name, kinds, result):
    """An instruction with one result."""
    operands = ", ".join(f"a{i}" for i in range(len(kinds.split())))
    form(f"{name} d0, {operands};", kinds, result)


def bits_of(t):
    return "b" + "".join(c for c in t.split("x")[0] if c.isdigit()) if t[-2:] != "x2" else "b32"


SMALL = ["u16", "s16"]
WORD = ["u32", "s32"]
LONG = ["u64", "s64"]


def integers():
    for t in SMALL + WORD + LONG:
        b = bits_of(t)
        for name in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            op(f"{name}.{t}", f"{b} {b}", b)
        for name in ("mad.lo", "mad.hi", "sad"):
            op(f"{name}.{t}", f"{b} {b} {b}", b)
        op(f"shr.{t}", f"{b} shift", b)
        if t in SMALL + WORD:
            wide = "b32" if t in SMALL else "b64"
            op(f"mul.wide.{t}", f"{b} {b}", wide)
            op(f"mad.wide.{t}", f"{b} {b} {wide}", wide)
        if t[0] == "s":
            op(f"abs.{t}", b, b)
            op(f"neg.{t}", b, b)
    for b in ("b16", "b32", "b64"):
        for name in ("and", "or", "xor"):
            op(f"{name}.{b}", f"{b} {b}", b)
        op(f"not.{b}", b, b)
        op(f"cnot.{b}", b, b)
        op(f"shl.{b}", f"{b} shift", b)
    for name in ("add.sat.s32", "sub.sat.s32", "min.relu.s32", "max.relu.s32", "mul24.lo.u32", "mul24.hi.u32", "mul24.lo.s32", "mul24.hi.s32"):
        op(name, "b32 b32", "b32")
    for name in ("mad24.lo.u32", "mad24.hi.u32", "mad24.lo.s32", "mad24.hi.s32", "mad24.hi.sat.s32", "mad.hi.sat.s32"):
        op(name, "b32 b32 b32", "b32")
    for b, t in (("b32", "u32"), ("b32", "s32"), ("b64", "u64"), ("b64", "s64")):
        form(f"add.cc.{t} d0, a0, a1; addc.{t} d1, a1, a2;", f"{b} {b} {b}", f"{b} {b}")
        form(f"sub.cc.{t} d0, a0, a1; subc.{t} d1, a1, a2;", f"{b} {b} {b}", f"{b} {b}")
        form(f"add.cc.{t} d0, a0, a1; addc.cc.{t} d1, a1, a2; addc.{t} d2, 0, 0;", f"{b} {b} {b}", f"{b} {b} {b}")
        form(f"sub.cc.{t} d0, a0, a1; subc.cc.{t} d1, a1, a2; subc.{t} d2, 0, 0;", f"{b} {b} {b}", f"{b} {b} {b}")
        form(f"add.cc.{t} d0, a0, a1; subc.{t} d1, a1, a2;", f"{b} {b} {b}", f"{b} {b}")
        form(f"sub.cc.{t} d0, a0, a1; addc.{t} d1, a1, a2;", f"{b} {b} {b}", f"{b} {b}")
        form(f"mad.lo.cc.{t} d0, a0, a1, a2; madc.hi.{t} d1, a0, a1, a2;", f"{b} {b} {b}", f"{b} {b}")
        form(f"mad.hi.cc.{t} d0, a0, a1, a2; madc.lo.cc.{t} d1, a0, a1, a2; addc.{t} d2, 0, 0;", f"{b} {b} {b}", f"{b} {b} {b}")


def bit_fields():
    for b in ("b32", "b64"):
        for name in ("popc", "clz"):
            op(f"{name}.{b}", b, "b32")
        op(f"brev.{b}", b, b)
        form(f"bfi.{b} d0, a0, a1, a2, 9;", f"{b} {b} shift", b)
        form(f"bfi.{b} d0, a0, a1, 5, a2;", f"{b} {b} shift", b)
    for t in WORD + LONG:
        b = bits_of(t)
        op(f"bfe.{t}", f"{b} shift shift", b)
        op(f"bfind.{t}", b, "b32")
        op(f"bfind.shiftamt.{t}", b, "b32")
    op("fns.b32", "b32 lane shift", "b32")
    form("fns.b32 d0, a0, a1, a2;", "b32 shift b32", "b32")
    form("neg.s32 d0, a2; fns.b32 d0, a0, a1, d0;", "b32 lane lane", "b32")
    for mode in ("clamp", "wrap"):
        op(f"szext.{mode}.u32", "b32 shift", "b32")
        op(f"szext.{mode}.s32", "b32 shift", "b32")
        op(f"bmsk.{mode}.b32", "shift shift", "b32")
        op(f"shf.l.{mode}.b32", "b32 b32 shift", "b32")
        op(f"shf.r.{mode}.b32", "b32 b32 shift", "b32")
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        op(f"prmt.b32{mode}", "b32 b32 b32", "b32")
    for table in (0x00, 0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x1D, 0x7F, 0x6A, 0xFF):
        form(f"lop3.b32 d0, a0, a1, a2, {table};", "b32 b32 b32", "b32")
    form("setp.ne.u32 q, a2, 0; lop3.or.b32 d0|p, a0, a1, a2, 0x68, q; selp.u32 d1, 1, 0, p;", "b32 b32 b32", "b32 b32")
    form("setp.ne.u32 q, a2, 0; lop3.and.b32 d0|p, a0, a1, a2, 0x68, q; selp.u32 d1, 1, 0, p;", "b32 b32 b32", "b32 b32")
    for a in ("u32", "s32"):
        for b in ("u32", "s32"):
            op(f"dp4a.{a}.{b}", "b32 b32 b32", "b32")
            op(f"dp2a.lo.{a}.{b}", "b32 b32 b32", "b32")
            op(f"dp2a.hi.{a}.{b}", "b32 b32 b32", "b32")
    for name in ("add.u16x2", "add.s16x2", "min.u16x2", "max.u16x2", "min.s16x2", "max.s16x2", "min.relu.s16x2", "max.relu.s16x2"):
        op(name, "b32 b32", "b32")


def floats():
    for ftz in ("", ".ftz"):
        for rnd in ("rn", "rz", "rm", "rp"):
            for sat in ("", ".sat"):
                for name in ("add", "sub", "mul"):
                    op(f"{name}.{rnd}{ftz}{sat}.f32", "f32 f32", "b32")
                op(f"fma.{rnd}{ftz}{sat}.f32", "f32 f32 f32", "b32")
                op(f"mad.{rnd}{ftz}{sat}.f32", "f32 f32 f32", "b32")
            op(f"div.{rnd}{ftz}.f32", "f32 f32", "b32")
            op(f"rcp.{rnd}{ftz}.f32", "f32", "b32")
            op(f"sqrt.{rnd}{ftz}.f32", "f32", "b32")
        for name in ("min", "max"):
            for nan in ("", ".NaN"):
                op(f"{name}{ftz}{nan}.f32", "f32 f32", "b32")
                op(f"{name}{ftz}{nan}.xorsign.abs.f32", "f32 f32", "b32")
        op(f"abs{ftz}.f32", "f32", "b32")
        op(f"neg{ftz}.f32", "f32", "b32")
    for rnd in ("rn", "rz", "rm", "rp"):
        for name in ("add", "sub", "mul", "div"):
            op(f"{name}.{rnd}.f64", "f64 f64", "b64")
        op(f"fma.{rnd}.f64", "f64 f64 f64", "b64")
        op(f"rcp.{rnd}.f64", "f64", "b64")
        op(f"sqrt.{rnd}.f64", "f64", "b64")
    for name in ("add.rn", "sub.rn", "mul.rn", "div.rn", "min", "max"):
        form(f"{name}.f64 d0, a0, a1; // NaNs", "nan64 nan64", "b64")
    form("fma.rn.f64 d0, a0, a1, a2; // NaNs", "nan64 nan64 nan64", "b64")
    form("fma.rz.f64 d0, a0, a1, a2; // NaNs", "nan64 nan64 nan64", "b64")
    for name in ("min", "max", "copysign"):
        op(f"{name}.f64", "f64 f64", "b64")
    op("copysign.f32", "f32 f32", "b32")
    op("abs.f64", "f64", "b64")
    op("neg.f64", "f64", "b64")
    for what in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        for t in ("f32", "f64"):
            form(f"testp.{what}.{t} p, a0; selp.u32 d0, 1, 0, p;", t, "b32")


def comparisons():
    ordered = ["eq", "ne", "lt", "le", "gt", "ge"]
    unordered = ["equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
    for c in ordered + unordered:
        for t in ("f32", "ftz.f32", "f64", "f16", "bf16", "ftz.f16"):
            kind = t.split(".")[-1]
            form(f"setp.{c}.{t} p, a0, a1; selp.u32 d0, 1, 0, p;", f"{kind} {kind}", "b32")
        for t in ("f16x2", "bf16x2"):
            form(f"setp.{c}.{t} p|q, a0, a1; selp.u32 d0, 1, 0, p; selp.u32 d1, 1, 0, q;", f"{t} {t}", "b32 b32")
    for c in ordered:
        for t in SMALL + WORD + LONG:
            form(f"setp.{c}.{t} p, a0, a1; selp.u32 d0, 1, 0, p;", f"{bits_of(t)} {bits_of(t)}", "b32")
    for c in ("lo", "ls", "hi", "hs"):
        for t in ("u16", "u32", "u64"):
            form(f"setp.{c}.{t} p, a0, a1; selp.u32 d0, 1, 0, p;", f"{bits_of(t)} {bits_of(t)}", "b32")
    for bool_op in ("and", "or", "xor"):
        form(f"setp.ne.u32 p, a2, 0; setp.lt.{bool_op}.s32 p|q, a0, a1, p; selp.u32 d0, 1, 0, p; selp.u32 d1, 1, 0, q;", "b32 b32 b32", "b32 b32")
        form(f"setp.ne.u32 p, a2, 0; setp.ge.{bool_op}.f32 p|q, a0, a1, !p; selp.u32 d0, 1, 0, p; selp.u32 d1, 1, 0, q;", "f32 f32 b32", "b32 b32")
    for d in ("u32", "s32", "f32"):
        for t in ("f32", "ftz.f32", "f64", "s32", "u64", "s16"):
            kind = t.split(".")[-1]
            kind = kind if kind[0] == "f" else bits_of(kind)
            name = f"set.lt.ftz.{d}.f32" if t == "ftz.f32" else f"set.lt.{d}.{t}"
            op(name, f"{kind} {kind}", "b32")
    for t in ("f16", "bf16"):
        op(f"set.gt.{t}.{t}", f"{t} {t}", "b16")
        op(f"set.geu.{t}x2.{t}x2", f"{t}x2 {t}x2", "b32")
        op(f"set.ne.u32.{t}x2" if False else f"set.ne.u32.{t}", f"{t} {t}", "b32")
    for t in ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        form(f"setp.lt.s32 p, a2, 0; selp.{t} d0, a0, a1, p;", f"{bits_of(t)} {bits_of(t)} b32", bits_of(t))
        op(f"slct.{t}.s32", f"{bits_of(t)} {bits_of(t)} b32", bits_of(t))
    op("slct.b32.f32", "b32 b32 f32", "b32")
    op("slct.ftz.u64.f32", "b64 b64 f32", "b64")


def halves():
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        b = bits_of(t)
        ftzs = ("", ".ftz") if t[0] == "f" else ("",)
        for ftz in ftzs:
            for sat in ("", ".sat") if t[0] == "f" else ("",):
                for name in ("add", "sub", "mul"):
                    op(f"{name}.rn{ftz}{sat}.{t}", f"{t} {t}", b)
                op(f"fma.rn{ftz}{sat}.{t}", f"{t} {t} {t}", b)
            op(f"fma.rn{ftz}.relu.{t}", f"{t} {t} {t}", b)
            for name in ("abs", "neg"):
                op(f"{name}{ftz}.{t}", t, b)
            for name in ("min", "max"):
                for nan in ("", ".NaN"):
                    for sign in ("", ".xorsign.abs"):
                        op(f"{name}{ftz}{nan}{sign}.{t}", f"{t} {t}", b)


def conversions():
    whole = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
    reg = lambda t: "b16" if t[1:] == "8" else bits_of(t)
    for d in whole:
        for s in whole:
            op(f"cvt.{d}.{s}", reg(s), reg(d))
            op(f"cvt.sat.{d}.{s}", reg(s), reg(d))
        for rnd in ("rni", "rzi", "rmi", "rpi"):
            for s in ("f16", "f32", "f64"):
                op(f"cvt.{rnd}.{d}.{s}", s, reg(d))
            op(f"cvt.{rnd}.ftz.{d}.f32", "f32", reg(d))
            op(f"cvt.{rnd}.sat.{d}.f32", "f32", reg(d))
            op(f"cvt.{rnd}.{d}.bf16", "bf16", reg(d))
        for rnd in ("rn", "rz", "rm", "rp"):
            for f in ("f16", "f32", "f64", "bf16"):
                op(f"cvt.{rnd}.{f}.{d}", reg(d), bits_of(f))
        op(f"cvt.rn.sat.f32.{d}", reg(d), "b32")
    for rnd in ("rni", "rzi", "rmi", "rpi"):
        for t in ("f16", "f32", "f64", "bf16"):
            op(f"cvt.{rnd}.{t}.{t}", t, bits_of(t))
        op(f"cvt.{rnd}.ftz.f32.f32", "f32", "b32")
        op(f"cvt.{rnd}.sat.f32.f32", "f32", "b32")
        op(f"cvt.{rnd}.sat.f64.f64", "f64", "b64")
        op(f"cvt.{rnd}.sat.f16.f16", "f16", "b16")
    for t in ("f32", "f64", "f16"):
        op(f"cvt.sat.{t}.{t}", t, bits_of(t))
        op(f"cvt.{t}.{t}", t, bits_of(t))
    for rnd in ("rn", "rz", "rm", "rp"):
        for ftz in ("", ".ftz"):
            op(f"cvt.{rnd}{ftz}.f32.f64", "f64", "b32")
            op(f"cvt.{rnd}{ftz}.f16.f32", "f32", "b16")
        op(f"cvt.{rnd}.sat.f32.f64", "f64", "b32")
        op(f"cvt.{rnd}.sat.f16.f32", "f32", "b16")
        op(f"cvt.{rnd}.f16.f64", "f64", "b16")
        op(f"cvt.{rnd}.bf16.f32", "f32", "b16")
        op(f"cvt.{rnd}.bf16.f64", "f64", "b16")
        op(f"cvt.{rnd}.bf16.f16", "f16", "b16")
        op(f"cvt.{rnd}.f16.bf16", "bf16", "b16")
    for name, kind, result in (("f32.f16", "f16", "b32"), ("ftz.f32.f16", "f16", "b32"), ("sat.f32.f16", "f16", "b32"), ("f64.f16", "f16", "b64"), ("f64.f32", "f32", "b64"), ("ftz.f64.f32", "f32", "b64"), ("sat.f64.f32", "f32", "b64"), ("f32.bf16", "bf16", "b32"), ("ftz.f32.bf16", "bf16", "b32"), ("f64.bf16", "bf16", "b64")):
        op(f"cvt.{name}", kind, result)
    for rnd in ("rn", "rz"):
        for relu in ("", ".relu"):
            for sat in ("", ".satfinite"):
                op(f"cvt.{rnd}{relu}{sat}.f16.f32", "f32", "b16")
                op(f"cvt.{rnd}{relu}{sat}.bf16.f32", "f32", "b16")
                op(f"cvt.{rnd}{relu}{sat}.f16x2.f32", "f32 f32", "b32")
                op(f"cvt.{rnd}{relu}{sat}.bf16x2.f32", "f32 f32", "b32")
                op(f"cvt.{rnd}{relu}{sat}.tf32.f32", "f32", "b32")
    op("cvt.rna.tf32.f32", "f32", "b32")
    op("cvt.rna.satfinite.tf32.f32", "f32", "b32")
    for f in ("e4m3x2", "e5m2x2"):
        for relu in ("", ".relu"):
            op(f"cvt.rn.satfinite{relu}.{f}.f32", "f32 f32", "b16")
            op(f"cvt.rn.satfinite{relu}.{f}.f16x2", "f16x2", "b16")
            op(f"cvt.rn{relu}.f16x2.{f}", "b16", "b32")


def approximations():
    for ftz in ("", ".ftz"):
        for name in ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2"):
            op(f"{name}.approx{ftz}.f32", "f32", "b32")
        op(f"div.approx{ftz}.f32", "f32 f32", "b32")
        op(f"div.full{ftz}.f32", "f32 f32", "b32")
    op("tanh.approx.f32", "f32", "b32")
    op("rcp.approx.ftz.f64", "f64", "b64")
    op("rsqrt.approx.ftz.f64", "f64", "b64")
    op("rsqrt.approx.f64", "f64", "b64")
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        op(f"tanh.approx.{t}", t, bits_of(t))
    for t in ("f16", "f16x2", "ftz.bf16", "ftz.bf16x2"):
        op(f"ex2.approx.{t}", t.split(".")[-1], bits_of(t.split(".")[-1]))


def warps():
    for mode in ("up", "down", "bfly", "idx"):
        for c in ("0", "31", "0x1f", "0x181f", "0x0807", "7"):
            form(f"shfl.sync.{mode}.b32 d0|p, a0, a1, {c}, -1; selp.u32 d1, 1, 0, p;", "b32 lane", "b32 b32")
        form(f"shfl.sync.{mode}.b32 d0|p, a0, a1, a2, -1; selp.u32 d1, 1, 0, p;", "b32 b32 b32", "b32 b32")
    for mode in ("all", "any", "uni"):
        form(f"setp.lt.s32 p, a0, 0; vote.sync.{mode}.pred q, p, -1; selp.u32 d0, 1, 0, q;", "b32", "b32")
        form(f"and.b32 d0, a0, 1; setp.ne.u32 p, d0, 0; setp.ge.u32 q, lane, 4; and.pred p, p, q; vote.sync.{mode}.pred q, !p, -1; selp.u32 d0, 1, 0, q;", "b32", "b32")
    form("setp.lt.s32 p, a0, 0; vote.sync.ballot.b32 d0, p, -1;", "b32", "b32")
    form("and.b32 d1, a0, 7; match.any.sync.b32 d0, d1, -1;", "b32", "b32 b32")
    form("shr.u64 d1, a0, 62; match.any.sync.b64 d0, d1, -1;", "b64", "b32 b64")
    form("and.b32 d1, a0, 0; match.all.sync.b32 d0|p, d1, -1; selp.u32 d1, 1, 0, p;", "b32", "b32 b32")
    form("match.all.sync.b32 d0|p, a0, -1; selp.u32 d1, 1, 0, p;", "b32", "b32 b32")
    for name in ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"):
        form(f"redux.sync.{name} d0, a0, -1;", "b32", "b32")
    form("setp.lt.s32 p, a0, 0; mov.u32 d0, 7; @p activemask.b32 d0;", "b32", "b32")
    form("setp.lt.s32 p, a0, 0; mov.u32 d0, 0; @p shl.b32 d0, a0, 1; @!p add.u32 d0, a0, 77;", "b32", "b32")
    for mode in ("popc.u32 d0, 0, p;", "and.pred q, 0, p; selp.u32 d0, 1, 0, q;", "or.pred q, 0, p; selp.u32 d0, 1, 0, q;"):
        form(f"setp.lt.s32 p, a0, 0; barrier.sync.aligned 0; bar.red.{mode}", "b32", "b32")
    form("mov.u32 d0, %laneid; mov.u32 d1, %lanemask_lt; mov.u32 d2, %lanemask_ge;", "b32", "b32 b32 b32")
    form("mov.b64 {d0, d1}, a0;", "b64", "b32 b32")
    form("mov.b32 {d0, d1}, a0;", "b32", "b16 b16")
    form("mov.b64 d0, {a0, a1};", "b32 b32", "b64")


def memory():
    for space, address in (("shared", "sa"), ("global", "ga"), ("", "ga")):
        dot = "." + space if space else ""
        for t, ops in (("b32", "and or xor exch"), ("u32", "add inc dec min max"), ("s32", "add min max"), ("b64", "and or xor exch"), ("u64", "add min max"), ("s64", "min max")):
            b = bits_of(t)
            for name in ops.split():
                form(f"st{dot}.{b} [{address}], a0; atom{dot}.{name}.{t} d0, [{address}], a1; ld{dot}.{b} d1, [{address}];", f"{b} {b}", f"{b} {b}")
                if name != "exch":
                    form(f"st{dot}.{b} [{address}], a0; red{dot}.{name}.{t} [{address}], a1; ld{dot}.{b} d0, [{address}];", f"{b} {b}", b)
        for t in ("b16", "b32", "b64"):
            form(f"st{dot}.{t} [{address}], a0; atom{dot}.cas.{t} d0, [{address}], a1, a2; ld{dot}.{t} d1, [{address}];", f"{t} {t} {t}", f"{t} {t}")
        for t, kind in (("f32", "f32"), ("f64", "f64"), ("noftz.f16", "f16"), ("noftz.f16x2", "f16x2"), ("noftz.bf16", "bf16"), ("noftz.bf16x2", "bf16x2")):
            b = bits_of(kind)
            form(f"st{dot}.{b} [{address}], a0; atom{dot}.add.{t} d0, [{address}], a1; ld{dot}.{b} d1, [{address}];", f"{kind} {kind}", f"{b} {b}")
            form(f"st{dot}.{b} [{address}], a0; red{dot}.add.{t} [{address}], a1; ld{dot}.{b} d0, [{address}];", f"{kind} {kind}", b)
        for t, b in (("u8", "b16"), ("s8", "b16"), ("u8", "b32"), ("s8", "b32"), ("u8", "b64"), ("s8", "b64"), ("u16", "b32"), ("s16", "b32"), ("s16", "b64"), ("u32", "b64"), ("s32", "b64")):
            form(f"st{dot}.b64 [{address}], a0; ld{dot}.{t} d0, [{address}+1];" if t[1:] == "8" else f"st{dot}.b64 [{address}], a0; ld{dot}.{t} d0, [{address}+4];", "b64", b)
        form(f"st{dot}.v2.b32 [{address}], {{a0, a1}}; st{dot}.b8 [{address}+3], a2; ld{dot}.b64 d0, [{address}];", "b32 b32 b32", "b64")
        form(f"st{dot}.v4.b16 [{address}], {{a0, a1, a2, a0}}; ld{dot}.v2.b32 {{d0, d1}}, [{address}];", "b16 b16 b16", "b32 b32")
    form("st.shared.b32 [sbase], 0; bar.warp.sync -1; red.shared.add.u32 [sbase], a0; bar.warp.sync -1; ld.shared.b32 d0, [sbase];", "b32", "b32")
    form("st.shared.b32 [sbase], 0; bar.warp.sync -1; red.shared.xor.b32 [sbase], a0; bar.warp.sync -1; ld.shared.b32 d0, [sbase];", "b32", "b32")
    form("st.shared.b32 [sa], a0; bar.sync 0; xor.b32 d0, lane, 5; mad.lo.u32 d0, d0, 16, sbase; ld.shared.b32 d0, [d0];", "b32", "b32")


def matrices():
    mma = "mma.sync.aligned.{shape}.row.col.{types} {{{d}}}, {{{a}}}, {{{b}}}, {{{c}}};"

    def add(shape, types, a, b, c, d, kind, c_kind, result):
        count = 0
        parts = []
        for n in (a, b, c):
            parts.append(", ".join(f"a{count + i}" for i in range(n)))
            count += n
        outs = ", ".join(f"d{i}" for i in range(d))
        body = mma.format(shape=shape, types=types, d=outs, a=parts[0], b=parts[1], c=parts[2])
        form(body, " ".join([kind] * (a + b) + [c_kind] * c), " ".join([result] * d))

    add("m16n8k8", "f32.f16.f16.f32", 2, 1, 4, 4, "near16", "near32", "b32")
    add("m16n8k16", "f32.f16.f16.f32", 4, 2, 4, 4, "near16", "near32", "b32")
    add("m16n8k16", "f32.f16.f16.f32", 4, 2, 4, 4, "f16x2", "f32", "b32")
    add("m16n8k8", "f16.f16.f16.f16", 2, 1, 2, 2, "near16", "near16", "b32")
    add("m16n8k16", "f16.f16.f16.f16", 4, 2, 2, 2, "near16", "near16", "b32")
    add("m16n8k8", "f32.bf16.bf16.f32", 2, 1, 4, 4, "nearb16", "near32", "b32")
    add("m16n8k16", "f32.bf16.bf16.f32", 4, 2, 4, 4, "nearb16", "near32", "b32")
    add("m16n8k16", "f32.bf16.bf16.f32", 4, 2, 4, 4, "bf16x2", "f32", "b32")
    add("m16n8k4", "f32.tf32.tf32.f32", 2, 1, 4, 4, "near32", "near32", "b32")
    add("m16n8k8", "f32.tf32.tf32.f32", 4, 2, 4, 4, "near32", "near32", "b32")
    add("m16n8k8", "f32.tf32.tf32.f32", 4, 2, 4, 4, "f32", "f32", "b32")
    add("m8n8k4", "f64.f64.f64.f64", 1, 1, 2, 2, "near64", "near64", "b64")
    add("m16n8k4", "f64.f64.f64.f64", 2, 1, 4, 4, "near64", "near64", "b64")
    add("m16n8k8", "f64.f64.f64.f64", 4, 2, 4, 4, "near64", "near64", "b64")
    add("m16n8k16", "f64.f64.f64.f64", 8, 4, 4, 4, "near64", "near64", "b64")
    for a in ("s8", "u8"):
        for b in ("s8", "u8"):
            add("m8n8k16", f"s32.{a}.{b}.s32", 1, 1, 2, 2, "b32", "b32", "b32")
            add("m16n8k16", f"s32.{a}.{b}.s32", 2, 1, 4, 4, "b32", "b32", "b32")
            add("m16n8k32", f"s32.{a}.{b}.s32", 4, 2, 4, 4, "b32", "b32", "b32")
    add("m16n8k32", "satfinite.s32.s8.s8.s32", 4, 2, 4, 4, "b32", "b32", "b32")
    for a in ("s4", "u4"):
        for b in ("s4", "u4"):
            add("m8n8k32", f"s32.{a}.{b}.s32", 1, 1, 2, 2, "b32", "b32", "b32")
            add("m16n8k32", f"s32.{a}.{b}.s32", 2, 1, 4, 4, "b32", "b32", "b32")
            add("m16n8k64", f"s32.{a}.{b}.s32", 4, 2, 4, 4, "b32", "b32", "b32")
    add("m16n8k64", "satfinite.s32.s4.s4.s32", 4, 2, 4, 4, "b32", "b32", "b32")
    for how in ("and", "xor"):
        add("m8n8k128", f"s32.b1.b1.s32.{how}.popc", 1, 1, 2, 2, "b32", "b32", "b32")
        add("m16n8k128", f"s32.b1.b1.s32.{how}.popc", 2, 1, 4, 4, "b32", "b32", "b32")
        add("m16n8k256", f"s32.b1.b1.s32.{how}.popc", 4, 2, 4, 4, "b32", "b32", "b32")
    # Fragments of wmma have no known places: all elements of a matrix have one value, of the first lane.
    for types, d, c in (("f32.f16", 8, 4), ("f16.f32", 4, 8)):
        # The operands have registers beside the results', which the kernel has no more use for: with
        # those of the results, ptxas 13.0 gave the second half of the sums other bits.
        names = ("sa", "sbase", "t")
        same = "prmt.b32 {2}, a{0}, a{0}, {1}; shfl.sync.idx.b32 {2}, {2}, 0, 31, -1;"
        masks = ("0x1010", "0x1010", "0x1010" if c == 4 else "0x3210")
        parts = [", ".join([names[i]] * n) for i, n in ((0, 8), (1, 8), (2, c))]
        outs = ", ".join(f"d{i}" for i in range(d))
        body = " ".join(same.format(i, mask, names[i]) for i, mask in enumerate(masks))
        body += f" wmma.mma.sync.aligned.row.col.m16n16k16.{types} {{{outs}}}, {{{parts[0]}}}, {{{parts[1]}}}, {{{parts[2]}}};"
        form(body, "near16 near16 " + ("near16" if c == 4 else "near32"), " ".join(["b32"] * d))


for part in (integers, bit_fields, floats, comparisons, halves, conversions, approximations, warps, memory, matrices):
    part()
# A form may arise twice.
FORMS = [(body, tuple(kinds), tuple(results)) for body, kinds, results in FORMS]
FORMS = list(dict.fromkeys(FORMS))
