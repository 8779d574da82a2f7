"""The instruction forms of matrices."""

from form import each, form, moving


def products():
    mma = "mma.sync.aligned.{shape}.{layouts}.{types} {{{d}}}, {{{a}}}, {{{b}}}, {{{c}}};"

    def add(shape, types, a, b, c, d, kind, c_kind, result, layouts="row.col"):
        count = 0
        parts = []
        for n in (a, b, c):
            parts.append(", ".join(f"a{count + i}" for i in range(n)))
            count += n
        outs = ", ".join(f"d{i}" for i in range(d))
        body = mma.format(shape=shape, layouts=layouts, types=types, d=outs, a=parts[0], b=parts[1], c=parts[2])
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

    for layouts in each("{row|col}.{row|col}"):
        for kind, c_kind in (("near16", "near32"), ("f16x2", "f32")):
            add("m8n8k4", "f32.f16.f16.f32", 2, 2, 8, 8, kind, c_kind, "b32", layouts)
            add("m8n8k4", "f16.f16.f16.f16", 2, 2, 4, 4, kind, kind, "b32", layouts)
            add("m8n8k4", "f32.f16.f16.f16", 2, 2, 4, 8, kind, kind, "b32", layouts)
    for factors in each("{e4m3|e5m2}.{e4m3|e5m2}"):
        for c_kind in ("near32", "f32"):
            add("m16n8k32", f"f32.{factors}.f32", 4, 2, 4, 4, "b32", c_kind, "b32")
            add("m16n8k16", f"f32.{factors}.f32", 2, 1, 4, 4, "b32", c_kind, "b32")
        for c_kind in ("near16", "f16x2"):
            add("m16n8k32", f"f16.{factors}.f16", 4, 2, 2, 2, "b32", c_kind, "b32")
            add("m16n8k16", f"f16.{factors}.f16", 2, 1, 2, 2, "b32", c_kind, "b32")

    def small(types, shapes):
        """Products of integers: of one, two and four registers of the first factor."""
        for shape, counts in zip(shapes, ((1, 1, 2, 2), (2, 1, 4, 4), (4, 2, 4, 4))):
            add(shape, types, *counts, "b32", "b32", "b32")

    for pattern, shapes in (
        ("{s8|u8}.{s8|u8}.s32", ("m8n8k16", "m16n8k16", "m16n8k32")),
        ("{s4|u4}.{s4|u4}.s32", ("m8n8k32", "m16n8k32", "m16n8k64")),
    ):
        for factors in each(pattern):
            for sat in ("", "satfinite."):
                small(f"{sat}s32.{factors}", shapes)
    for how in ("and", "xor"):
        small(f"s32.b1.b1.s32.{how}.popc", ("m8n8k128", "m16n8k128", "m16n8k256"))
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

# Of the types of factors: the bits of an element, the registers of a fragment of their square shape, and
# operands of 32 or 64 bits that fill them.
FACTORS = {"f16": (16, 8, "near16"), "bf16": (16, 4, "nearb16"), "s8": (8, 2, "b32"), "u8": (8, 2, "b32"), "tf32": (32, 4, "near32"), "f64": (64, 1, "near64"), "s4": (4, 1, "b32"), "u4": (4, 1, "b32"), "b1": (1, 1, "b32")}
# Of the types of sums: bits, registers of a fragment of 256 elements (one of 64 has two), operands.
SUMS = {"f32": (32, 8, "near32"), "f16": (16, 4, "near16"), "s32": (32, 8, "b32"), "f64": (64, 8, "near64")}


def names(letter, count):
    return "{" + ", ".join(f"{letter}{i}" for i in range(count)) + "}"


def whole(shape, factor, c, d, a_layout, b_layout, c_layout, space, mma):
    """A product of matrices that lie in memory, as its fragments have no known places in registers.

    The bytes of the operands, lane after lane, fill each matrix again and again.
    """
    m, n, k = (int(size) for size in shape[1:].replace("n", " ").replace("k", " ").split())
    bits, registers, kind = FACTORS[factor]
    a_registers, b_registers = {"m32n8k16": (2 * registers, registers // 2), "m8n32k16": (registers // 2, 2 * registers)}.get(shape, (registers, registers))
    if factor == "f16":
        a_registers = b_registers = 8
    c_bits, c_registers, c_kind = SUMS[c]
    d_bits, d_registers, _ = SUMS[d]
    if m * n == 64:
        c_registers = d_registers = 2
    b = "b64" if kind == "near64" else "b32"
    cb, db = ("b64" if t == "f64" else "b32" for t in (c, d))
    size = 8 if b == "b64" else 4
    bytes_of = {"A": m * k * bits // 8, "B": k * n * bits // 8, "C": m * n * c_bits // 8, "D": m * n * d_bits // 8}
    words = max(bytes_of["D"] // 128, 1)
    of, moved = ("global", "mad.wide.u32") if space == "global" else ("shared", "mad.lo.u32")
    fill = lambda name, value, bytes_all, each_size: "".join(f"st.{of}.b{each_size * 8} [at{name}+{at}], {value}; " for at in range(0, max(bytes_all, 32 * each_size), 32 * each_size))
    body = "{ "
    if of == "global":
        # Each block has 4 KiB of the scratch bytes.
        body += f"ld.param.u64 at, [p{3 + words}]; cvta.to.global.u64 at, at; mul.wide.u32 n8, t, 4096; add.u64 at, at, n8; "
    for number, (name, bytes_all) in enumerate(bytes_of.items()):
        if of == "global":
            body += f".reg .b64 at{name}, w{name}; add.u64 w{name}, at, {1024 * number}; mov.b64 at{name}, w{name}; "
        else:
            body += f".shared .align 128 .b8 m{name}[{max(bytes_all, 256)}]; .reg .b32 at{name}; .reg .b64 w{name}; mov.b32 at{name}, m{name}; cvt.u64.u32 w{name}, at{name}; cvta.shared.u64 w{name}, w{name}; "
    for name, each_size in (("A", size), ("B", size), ("C", 8 if c == "f64" else 4)):
        body += f"{moved} at{name}, lane, {each_size}, at{name}; "
        body += fill(name, f"a{'ABC'.index(name)}", bytes_of[name], each_size)
    body += f".reg .{b} x<8>, y<8>; .reg .{cb} u<8>; .reg .{db} v<8>; bar.sync 0; "
    dot = "." + space if space else ""
    where = (lambda name: f"m{name}") if space == "shared" else (lambda name: f"w{name}")
    lines = {"row": (k, n, n), "col": (m, k, m)}
    body += f"wmma.load.a.sync.aligned.{a_layout}.{shape}{dot}.{factor} {names('x', a_registers)}, [{where('A')}], {lines[a_layout][0]}; "
    body += f"wmma.load.b.sync.aligned.{b_layout}.{shape}{dot}.{factor} {names('y', b_registers)}, [{where('B')}], {lines[b_layout][1]}; "
    body += f"wmma.load.c.sync.aligned.{c_layout}.{shape}{dot}.{c} {names('u', c_registers)}, [{where('C')}], {lines[c_layout][2]}; "
    body += f"{mma} {names('v', d_registers)}, {names('x', a_registers)}, {names('y', b_registers)}, {names('u', c_registers)}; "
    body += f"wmma.store.d.sync.aligned.{c_layout}.{shape}{dot}.{d} [{where('D')}], {names('v', d_registers)}, {lines[c_layout][2]}; bar.sync 0; "
    body += f"{moved} atD, lane, 4, atD; " + "".join(f"ld.{of}.b32 d{i}, [atD+{128 * i}]; " for i in range(words)) + "}"
    moving(body, f"{kind} {kind} {c_kind}", " ".join(["b32"] * words))


def in_memory():
    shapes = ("m16n16k16", "m32n8k16", "m8n32k16")
    for shape in shapes:
        for a_layout in ("row", "col"):
            for b_layout in ("row", "col"):
                for c, d in (("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")):
                    for space in ("shared", "", "global"):
                        whole(shape, "f16", c, d, a_layout, b_layout, b_layout, space, f"wmma.mma.sync.aligned.{a_layout}.{b_layout}.{shape}.{d}.{c}")
    for a_layout in ("row", "col"):
        for b_layout in ("row", "col"):
            for space in ("shared", "", "global"):
                whole("m16n16k16", "bf16", "f32", "f32", a_layout, b_layout, a_layout, space, f"wmma.mma.sync.aligned.{a_layout}.{b_layout}.m16n16k16.f32.bf16.bf16.f32")
                whole("m16n16k8", "tf32", "f32", "f32", a_layout, b_layout, a_layout, space, f"wmma.mma.sync.aligned.{a_layout}.{b_layout}.m16n16k8.f32.tf32.tf32.f32")
                for t in ("s8", "u8"):
                    for sat in ("", ".satfinite"):
                        for shape in shapes:
                            whole(shape, t, "s32", "s32", a_layout, b_layout, a_layout, space, f"wmma.mma.sync.aligned.{a_layout}.{b_layout}.{shape}.s32.{t}.{t}.s32{sat}")
                for rounding in ("", ".rn"):
                    whole("m8n8k4", "f64", "f64", "f64", a_layout, b_layout, a_layout, space, f"wmma.mma.sync.aligned.{a_layout}.{b_layout}.m8n8k4{rounding}.f64.f64.f64.f64")
    for c_layout in ("row", "col"):
        for space in ("shared", "", "global"):
            for t in ("s4", "u4"):
                for sat in ("", ".satfinite"):
                    whole("m8n8k32", t, "s32", "s32", "row", "col", c_layout, space, f"wmma.mma.sync.aligned.row.col.m8n8k32.s32.{t}.{t}.s32{sat}")
            for how in ("xor", "and"):
                whole("m8n8k128", "b1", "s32", "s32", "row", "col", c_layout, space, f"wmma.mma.{how}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32")


def tiles():
    own = "{ .reg .b64 wide; cvt.u64.u32 wide, sa; cvta.shared.u64 wide, wide; st.shared.v4.b32 [sa], {a0, a1, a2, a0}; bar.sync 0; "
    for count in (1, 2, 4):
        registers = names("d", count)
        for space, address in ((".shared", "sa"), ("", "wide")):
            for trans in ("", ".trans"):
                moving(f"{own}ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {registers}, [{address}]; }}", "b32 b32 b32", " ".join(["b32"] * count))
                values = "{" + ", ".join(("a0", "a1", "a2", "lane")[:count]) + "}"
                moving(f"{own}stmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 [{address}], {values}; bar.sync 0; ld.shared.v4.b32 {{d0, d1, d2, d3}}, [sa]; }}", "b32 b32 b32", "b32 b32 b32 b32")
    moving("movmatrix.sync.aligned.m8n8.trans.b16 d0, a0;", "b32", "b32")


def add():
    for part in (products, in_memory, tiles):
        part()
