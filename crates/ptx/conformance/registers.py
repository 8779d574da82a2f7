"""The instruction forms that calculate with registers, alone or across a warp."""

from form import LONG, SMALL, WORD, bits_of, each, form, kind_of, op, register_of


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
        op(f"shr.{b}", f"{b} shift", b)
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
        form(f"mad.hi.cc.{t} d0, a0, a1, a2; madc.lo.{t} d1, a0, a1, a2;", f"{b} {b} {b}", f"{b} {b}")
        form(f"mad.lo.cc.{t} d0, a0, a1, a2; madc.hi.cc.{t} d1, a0, a1, a2; addc.{t} d2, 0, 0;", f"{b} {b} {b}", f"{b} {b} {b}")


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


def predicates():
    two = "and.b32 t, a0, 1; setp.ne.u32 p, t, 0; and.b32 t, a1, 1; setp.ne.u32 q, t, 0;"
    for name in ("and", "or", "xor"):
        form(f"{two} {name}.pred p, p, q; selp.u32 d0, 1, 0, p;", "b32 b32", "b32")
    form(f"{two} not.pred p, p; mov.pred q, p; selp.u32 d0, 1, 0, p; selp.u32 d1, 1, 0, q;", "b32 b32", "b32 b32")


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
    for name in each("{add|sub|mul}{|.ftz}{|.sat}.f32"):
        op(name, "f32 f32", "b32")
    for name in each("{add|sub|mul}.f64"):
        op(name, "f64 f64", "b64")
    for rnd in ("rn", "rz", "rm", "rp"):
        for name in ("add", "sub", "mul", "div"):
            op(f"{name}.{rnd}.f64", "f64 f64", "b64")
        op(f"fma.{rnd}.f64", "f64 f64 f64", "b64")
        op(f"mad.{rnd}.f64", "f64 f64 f64", "b64")
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
        for t in ("f16x2", "bf16x2", "ftz.f16x2"):
            kind = t.split(".")[-1]
            form(f"setp.{c}.{t} p|q, a0, a1; selp.u32 d0, 1, 0, p; selp.u32 d1, 1, 0, q;", f"{kind} {kind}", "b32 b32")
    for name in each("setp.{eq|ne|lt|le|gt|ge}.{b16|b32|b64}"):
        kind = name.split(".")[-1]
        form(f"{name} p, a0, a1; selp.u32 d0, 1, 0, p;", f"{kind} {kind}", "b32")
    for name in each("setp.{eq|ne|lt|le|gt|ge}.{and|or|xor}.{u32|s32|s64|f32}"):
        kind = kind_of(name.split(".")[-1])
        form(f"setp.ne.u32 p, a2, 0; {name} p|q, a0, a1, !p; selp.u32 d0, 1, 0, p; selp.u32 d1, 1, 0, q;", f"{kind} {kind} b32", "b32 b32")
    for c in ordered:
        for t in SMALL + WORD + LONG:
            form(f"setp.{c}.{t} p, a0, a1; selp.u32 d0, 1, 0, p;", f"{bits_of(t)} {bits_of(t)}", "b32")
    for c in ("lo", "ls", "hi", "hs"):
        for t in ("u16", "u32", "u64"):
            form(f"setp.{c}.{t} p, a0, a1; selp.u32 d0, 1, 0, p;", f"{bits_of(t)} {bits_of(t)}", "b32")
    for bool_op in ("and", "or", "xor"):
        form(f"setp.ne.u32 p, a2, 0; setp.lt.{bool_op}.s32 p|q, a0, a1, p; selp.u32 d0, 1, 0, p; selp.u32 d1, 1, 0, q;", "b32 b32 b32", "b32 b32")
        form(f"setp.ne.u32 p, a2, 0; setp.ge.{bool_op}.f32 p|q, a0, a1, !p; selp.u32 d0, 1, 0, p; selp.u32 d1, 1, 0, q;", "f32 f32 b32", "b32 b32")
    for pattern in (
        "set.{eq|ne|lt|le|gt|ge}.{u32|s32|f32}.{b16|b32|b64|u16|u32|u64|s16|s32|s64|f64}",
        "set.{eq|lt|ge|gt|geu|num|nan}{|.ftz}.{u32|s32|f32}.f32",
        "set.{eq|lt|nan}{|.ftz}.{f16|u16|s16|u32|s32}.f16",
        "set.{eq|lt|nan}.{bf16|u16|s16|u32|s32}.bf16",
        "set.{eq|lt|nan}{|.ftz}.f16x2.f16x2",
        "set.{eq|lt|nan}.bf16x2.bf16x2",
        "set.gt.{f16.f16|bf16.bf16|bf16x2.bf16x2}",
        "set.geu.{f16x2.f16x2|bf16x2.bf16x2|bf16.bf16}",
        "set.ne.u32.{f16|bf16}",
        "set.ge.u32.f16x2",
        "set.ge.ftz.f32.u32",
    ):
        for name in each(pattern):
            d, t = name.split(".")[-2:]
            op(name, f"{kind_of(t)} {kind_of(t)}", bits_of(d))
    for name in each("set.{eq|ne}.{and|or|xor}.{u32|s32}.s32"):
        form(f"setp.ne.u32 p, a2, 0; {name} d0, a0, a1, p;", "b32 b32 b32", "b32")
    for t in ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        form(f"setp.lt.s32 p, a2, 0; selp.{t} d0, a0, a1, p;", f"{bits_of(t)} {bits_of(t)} b32", bits_of(t))
        op(f"slct.{t}.s32", f"{bits_of(t)} {bits_of(t)} b32", bits_of(t))
    for name in each("slct{|.ftz}.{b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64}.f32"):
        kind = bits_of(name.split(".")[-2])
        op(name, f"{kind} {kind} f32", kind)


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
            for name in each("{add|sub|mul}" + ftz + ("{|.sat}." if t[0] == "f" else ".") + t):
                op(name, f"{t} {t}", b)
            for name in ("abs", "neg"):
                op(f"{name}{ftz}.{t}", t, b)
            for name in ("min", "max"):
                for nan in ("", ".NaN"):
                    for sign in ("", ".xorsign.abs"):
                        op(f"{name}{ftz}{nan}{sign}.{t}", f"{t} {t}", b)


def out_of_bounds():
    """NaNs that stand for what is beyond a tensor, and others, in some lanes."""
    ones = ("0x7ff7", "0xfff7", "0x7fff", "0x7ff6")
    for name in each("fma.rn.oob{|.relu}.{f16|f16x2|bf16|bf16x2}"):
        t = name.split(".")[-1]
        b = bits_of(t)
        values = [one if b == "b16" else one + one[2:] if n % 2 else "0x3c00" + one[2:] for n, one in enumerate(ones)]
        placed = "".join(f"setp.eq.u32 p, lane, {4 * i + n}; selp.{b} a{i}, {value}, a{i}, p; " for i in range(3) for n, value in enumerate(values))
        form(f"{placed}{name} d0, a0, a1, a2;", f"{t} {t} {t}", b)


def conversions():
    whole = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
    for d in whole:
        for s in whole:
            op(f"cvt.{d}.{s}", register_of(s), register_of(d))
            op(f"cvt.sat.{d}.{s}", register_of(s), register_of(d))
        for rnd in ("rni", "rzi", "rmi", "rpi"):
            for s in ("f16", "f32", "f64"):
                op(f"cvt.{rnd}.{d}.{s}", s, register_of(d))
            op(f"cvt.{rnd}.ftz.{d}.f32", "f32", register_of(d))
            op(f"cvt.{rnd}.sat.{d}.f32", "f32", register_of(d))
            op(f"cvt.{rnd}.{d}.bf16", "bf16", register_of(d))
        for rnd in ("rn", "rz", "rm", "rp"):
            for f in ("f16", "f32", "f64", "bf16"):
                op(f"cvt.{rnd}.{f}.{d}", register_of(d), bits_of(f))
        op(f"cvt.rn.sat.f32.{d}", register_of(d), "b32")
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
    integer = "{u8|u16|u32|u64|s8|s16|s32|s64}"
    for pattern in (
        "cvt.{rn|rz|rm|rp}.sat.{f32|f64|f16}." + integer,
        "cvt.{rni|rzi|rmi|rpi}.ftz.sat." + integer + ".f32",
        "cvt.{rni|rzi|rmi|rpi}.sat." + integer + ".{f64|f16|bf16}",
        "cvt.{rn|rz|rm|rp}.ftz.sat.f32.f64",
        "cvt{|.ftz}{|.sat}.f32.{f16|f32}",
        "cvt.{rn|rz|rm|rp}.ftz.sat.f16.f32",
        "cvt.{rni|rzi|rmi|rpi}.ftz.sat.f32.f32",
    ):
        for name in each(pattern):
            d, t = name.split(".")[-2:]
            op(name, kind_of(t) if t[0] in "fb" else register_of(t), register_of(d))
    for name in each("cvt.pack.sat.{u16|s16}.s32"):
        op(name, "b32 b32", "b32")
    for name in each("cvt.pack.sat.{u8|s8}.s32.b32"):
        op(name, "b32 b32 b32", "b32")
    for name in each("cvt.pack.sat.{u4|s4|u2|s2}.s32.b32"):
        op(name, "b32 b32 b32", "b32")
    for name in each("cvt{|.rn}.{f32|f64}.bf16") + each("cvt.{f16.bf16|bf16.f16}"):
        d, t = name.split(".")[-2:]
        op(name, t, bits_of(d))
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
    form("match.all.sync.b64 d0|p, a0, -1; selp.u32 d1, 1, 0, p;", "b64", "b32 b32")
    form("and.b64 d1, a0, 0; match.all.sync.b64 d0|p, d1, -1; selp.u64 d1, 1, 0, p;", "b64", "b32 b64")
    form("elect.sync d0|p, -1; selp.u32 d1, 1, 0, p;", "b32", "b32 b32")
    form("setp.ge.u32 p, lane, 7; mov.u32 d0, 77; mov.u32 d1, 5; @p elect.sync d0|q, 0xffffff80; @p selp.u32 d1, 1, 0, q;", "b32", "b32 b32")


def moves():
    for t in ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        op(f"mov.{t}", bits_of(t), bits_of(t))
    form("mov.b64 {d0, d1}, a0;", "b64", "b32 b32")
    form("mov.b32 {d0, d1}, a0;", "b32", "b16 b16")
    form("mov.b64 d0, {a0, a1};", "b32 b32", "b64")
    form("mov.b64 {d0, d1, d2, d3}, a0;", "b64", "b16 b16 b16 b16")
    form("mov.b64 d0, {a0, a1, a0, a2};", "b16 b16 b16", "b64")
    form("{ .reg .b128 x, y; mov.b128 x, {a0, a1}; mov.b128 y, x; mov.b128 {d1, d0}, y; }", "b64 b64", "b64 b64")


def branches():
    form("and.b32 t, a0, 1; ways: .branchtargets even, odd; brx.idx t, ways; even: mov.b32 d0, 7; bra.uni end; odd: add.u32 d0, a0, 9; bra end; end:", "b32", "b32")
    form("and.b32 t, a0, 0; ways: .branchtargets first, second; brx.idx.uni t, ways; first: mov.b32 d0, a0; bra end; second: mov.b32 d0, 3; end:", "b32", "b32")
    form("{ .reg .b64 x, y; stacksave.u64 y; alloca.u64 x, 16; st.local.b32 [x+4], a0; ld.local.b32 d0, [x+4]; stackrestore.u64 y; }", "b32", "b32")
    form("{ .reg .b64 x, y; alloca.u64 x, 32, 16; st.local.b32 [x+4], a0; ld.local.b32 d0, [x+4]; and.b64 y, x, 15; cvt.u32.u64 d1, y; }", "b32", "b32 b32")


def add():
    for part in (integers, bit_fields, predicates, floats, comparisons, halves, out_of_bounds, conversions, approximations, warps, moves, branches):
        part()
