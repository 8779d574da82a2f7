"""The instruction forms of memory, of its order, and of barriers."""

from form import bits_of, each, form, moving, register_of

SPACES = (("shared", "sa"), ("global", "ga"), ("", "ga"))


def dotted(space):
    return "." + space if space else ""


def atomics():
    for space, address in SPACES:
        dot = dotted(space)
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
            for name in ("add",) if "noftz" not in t else ("add", "min", "max"):
                form(f"st{dot}.{b} [{address}], a0; atom{dot}.{name}.{t} d0, [{address}], a1; ld{dot}.{b} d1, [{address}];", f"{kind} {kind}", f"{b} {b}")
                form(f"st{dot}.{b} [{address}], a0; red{dot}.{name}.{t} [{address}], a1; ld{dot}.{b} d0, [{address}];", f"{kind} {kind}", b)
        pairs = "{ .reg .b128 x, y, z; mov.b128 x, {a0, a1}; st%s.b128 [%s], x; mov.b128 y, {a1, a0}; " % (dot, address)
        back = "mov.b128 {d0, d1}, z; ld%s.v2.b64 {d2, d3}, [%s]; }" % (dot, address)
        form(f"{pairs}atom{dot}.exch.b128 z, [{address}], y; {back}", "b64 b64", "b64 b64 b64 b64")
        form(f"{pairs}atom{dot}.cas.b128 z, [{address}], x, y; {back}", "b64 b64", "b64 b64 b64 b64")
        form(f"{pairs}atom{dot}.cas.b128 z, [{address}], y, x; {back}", "b64 b64", "b64 b64 b64 b64")
        form(f"{pairs}ld{dot}.b128 z, [{address}]; {back}", "b64 b64", "b64 b64 b64 b64")
    for pattern, kind in (("add.v{2|4}.f32", "f32"), ("{add|min|max}.noftz.v{2|4|8}.f16", "f16"), ("{add|min|max}.noftz.v{2|4|8}.bf16", "bf16"), ("{add|min|max}.noftz.v{2|4}.f16x2", "f16x2"), ("{add|min|max}.noftz.v{2|4}.bf16x2", "bf16x2")):
        for name in each("{|.global}." + pattern):
            vectors(name, kind)
    for order in each("{|.relaxed|.acquire|.release|.acq_rel}.{cta|cluster|gpu|sys}{|.global}.{add|max}.{u32|s32}"):
        moving(f"st.global.b32 [ga], a0; atom{order} d0, [ga], a1; ld.global.b32 d1, [ga];", "b32 b32", "b32 b32")
    for order in each("{.relaxed|.release|}.{cta|cluster|gpu|sys}.global.{add|max}.{u32|s32}"):
        moving(f"st.global.b32 [ga], a0; red{order} [ga], a1; ld.global.b32 d0, [ga];", "b32 b32", "b32")
    form("st.global.b32 [ga], a0; atom.acquire.gpu.cas.b32 d0, [ga], a1, a2; ld.global.b32 d1, [ga];", "b32 b32 b32", "b32 b32")
    form("st.global.b32 [ga], a0; atom.acquire.cta.xor.b32 d0, [ga], a1; ld.global.b32 d1, [ga];", "b32 b32", "b32 b32")
    form("st.shared.b32 [sbase], 0; bar.warp.sync -1; red.shared.add.u32 [sbase], a0; bar.warp.sync -1; ld.shared.b32 d0, [sbase];", "b32", "b32")
    form("st.shared.b32 [sbase], 0; bar.warp.sync -1; red.shared.xor.b32 [sbase], a0; bar.warp.sync -1; ld.shared.b32 d0, [sbase];", "b32", "b32")
    form("st.shared.b32 [sa], a0; bar.sync 0; xor.b32 d0, lane, 5; mad.lo.u32 d0, d0, 16, sbase; ld.shared.b32 d0, [d0];", "b32", "b32")


def vectors(name, kind):
    """Atomics of vectors. The results of some are the operands of others."""
    count, b = int(name.split(".v")[1][0]), bits_of(kind)
    size = count * int(b[1:]) // 8
    values = ", ".join(f"a{(3 * i + 1) % 3}" if i % 2 else "x0" for i in range(count))
    names = ", ".join(f"x{i}" for i in range(count))
    begin = f"{{ .reg .{b} x<8>; mov.{b} x0, a2; st.global.v4.b32 [ga], {{0, 0, 0, 0}}; "
    begin += " ".join(f"st.global.{b} [ga+{i * int(b[1:]) // 8}], a{i % 3};" for i in range(count))
    end = "ld.global.v4.b32 {d0, d1, d2, d3}, [ga]; }"
    moving(f"{begin} red{name} [ga], {{{values}}}; {end}", f"{kind} {kind} {kind}", "b32 b32 b32 b32")
    back = " ".join(f"st.global.{b} [ga+{i * int(b[1:]) // 8}], x{i};" for i in range(count))
    moving(f"{begin} atom{name} {{{names}}}, [ga], {{{values}}}; {end[:-2]} {back} ld.global.v4.b32 {{d4, d5, d6, d7}}, [ga]; }}", f"{kind} {kind} {kind}", "b32 b32 b32 b32 b32 b32 b32 b32")
    assert size <= 16


def clusters():
    """Shared memory by its address in the cluster: a block without a cluster is alone in its own."""
    at = "{ .reg .b32 far; mapa.shared::cluster.u32 far, sa, 0; "
    for name in each("{add|min|max}.{u32|s32|u64}"):
        b = bits_of(name.split(".")[-1])
        moving(f"st.shared.{b} [sa], a0; {at}atom.shared::cluster.{name} d0, [far], a1; ld.shared.{b} d1, [sa]; }}", f"{b} {b}", f"{b} {b}")
        moving(f"st.shared.{b} [sa], a0; {at}red.shared::cluster.{name} [far], a1; ld.shared.{b} d0, [sa]; }}", f"{b} {b}", b)
    for b in ("b32", "b64"):
        moving(f"st.shared.{b} [sa], a0; {at}atom.relaxed.cluster.shared::cluster.exch.{b} d0, [far], a1; ld.shared.{b} d1, [sa]; }}", f"{b} {b}", f"{b} {b}")
        moving(f"st.shared.{b} [sa], a0; {at}atom.relaxed.cluster.shared::cluster.cas.{b} d0, [far], a1, a2; ld.shared.{b} d1, [sa]; }}", f"{b} {b} {b}", f"{b} {b}")
    for order in each("{|.volatile|.relaxed.cluster}"):
        for t in ("b8", "b16", "b32", "b64", "f32", "f64"):
            b = register_of(t)
            moving(f"st.shared.b64 [sa], 0; {at}st{order}.shared::cluster.{t} [far], a0; ld{order}.shared::cluster.{t} d0, [far]; }}", b, b)
    for t in ("b32", "f32"):
        moving(f"{at}st.shared::cluster.v4.{t} [far], {{a0, a1, a2, a0}}; ld.shared::cluster.v4.{t} {{d0, d1, d2, t}}, [far]; }}", "b32 b32 b32", "b32 b32 b32")
    wide = "{ .reg .b64 far, near; .reg .b32 rank; cvt.u64.u32 near, sa; "
    moving(f"{wide}mapa.shared::cluster.u64 near, near, 0; cvt.u32.u64 rank, near; st.shared::cluster.b32 [rank], a0; ld.shared.b32 d0, [sa]; getctarank.shared::cluster.u64 d1, near; }}", "b32", "b32 b32")
    moving(f"{wide}cvta.shared.u64 near, near; mapa.u64 far, near, 0; st.b32 [far], a0; ld.shared.b32 d0, [sa]; getctarank.u64 d1, far; }}", "b32", "b32 b32")
    moving(f"{at}getctarank.shared::cluster.u32 d0, far; }}", "b32", "b32")
    for arrive in each("barrier.cluster.arrive{|.release|.relaxed}{|.aligned}"):
        for wait in each("barrier.cluster.wait{|.acquire}") if "aligned" not in arrive else each("barrier.cluster.wait{|.acquire}.aligned"):
            moving(f"st.shared.b32 [sa], a0; {arrive}; {wait}; bar.sync 0; xor.b32 d0, lane, 5; mad.lo.u32 d0, d0, 16, sbase; ld.shared.b32 d0, [d0];", "b32", "b32")


def loads_and_stores():
    for space, address in SPACES:
        dot = dotted(space)
        for t, b in (("u8", "b16"), ("s8", "b16"), ("u8", "b32"), ("s8", "b32"), ("u8", "b64"), ("s8", "b64"), ("u16", "b32"), ("s16", "b32"), ("s16", "b64"), ("u32", "b64"), ("s32", "b64")):
            moving(f"st{dot}.b64 [{address}], a0; ld{dot}.{t} d0, [{address}+1];" if t[1:] == "8" else f"st{dot}.b64 [{address}], a0; ld{dot}.{t} d0, [{address}+4];", "b64", b)
        moving(f"st{dot}.v2.b32 [{address}], {{a0, a1}}; st{dot}.b8 [{address}+3], a2; ld{dot}.b64 d0, [{address}];", "b32 b32 b32", "b64")
        moving(f"st{dot}.v4.b16 [{address}], {{a0, a1, a2, a0}}; ld{dot}.v2.b32 {{d0, d1}}, [{address}];", "b16 b16 b16", "b32 b32")
    local = "{ .local .align 16 .b8 own[32]; .reg .b64 la; mov.b64 la, own; "
    for space, address in (*SPACES, ("local", "la")):
        dot, (begin, end) = dotted(space), (local, " }") if space == "local" else ("", "")
        for t in each("{b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64}"):
            b = register_of(t)
            moving(f"{begin}st{dot}.b64 [{address}], 0; st{dot}.{t} [{address}], a0; ld{dot}.{t} d0, [{address}]; ld{dot}.u8 d1, [{address}];{end}", b, f"{b} b16")
            if t[0] != "s":
                moving(f"{begin}st{dot}.v2.{t} [{address}], {{a0, a1}}; ld{dot}.v2.{t} {{d1, d0}}, [{address}];{end}", f"{b} {b}", f"{b} {b}")
            if t in ("b8", "b16", "b32", "u8", "u16", "u32", "f32"):
                moving(f"{begin}st{dot}.v4.{t} [{address}], {{a0, a1, a2, a0}}; ld{dot}.v4.{t} {{d2, d1, d0, d3}}, [{address}];{end}", f"{b} {b} {b}", f"{b} {b} {b} {b}")
        for t in ("u8", "u32", "u64", "f32"):
            b = register_of(t)
            moving(f"{begin}st.volatile{dot}.{t} [{address}], a0; ld.volatile{dot}.{t} d0, [{address}];{end}", b, b)
    for b, pattern in (("b32", "{b32|f32}"), ("b64", "{b64|f64}")):
        for t in each(pattern):
            moving(f"st.global.v2.{t} [ga], {{a0, a1}}; membar.cta; ld.global.v2.{t} {{d0, d1}}, [ga];", f"{b} {b}", f"{b} {b}")


def kept():
    """Loads of memory that the kernel does not write, and hints. Reads what the launch before left: zeros."""
    for t in ("b8", "b16", "b32", "b64", "u8", "u32", "u64", "f32", "f64"):
        b = register_of(t)
        moving(f"{{ .reg .{b} x; ld.global.nc.{t} x, [ga]; and.{b} x, x, 0; or.{b} d0, x, a0; }}", b, b)
    # The operands of a case and of those beside it.
    own = "{ .reg .b64 x, y; .reg .b32 first; ld.param.u64 x, [p0]; cvta.to.global.u64 x, x; and.b32 first, n, -4; mul.wide.u32 y, first, %d; add.u64 x, x, y; "
    for t in ("b32", "b64", "f32", "f64"):
        b = bits_of(t)
        moving(f"{own % (int(b[1:]) // 8)}ld.global.nc.v2.{t} {{d1, d0}}, [x]; }}", b, f"{b} {b}")
    moving(f"{own % 4}ld.global.nc.L1::no_allocate.v2.u32 {{d1, d0}}, [x]; }}", "b32", "b32 b32")
    for name in ("nc.v4.b32", "nc.v4.f32", "nc.L1::no_allocate.v4.b32", "nc.L1::no_allocate.L2::128B.v4.b32"):
        moving(f"{own % 4}ld.global.{name} {{d3, d1, d0, d2}}, [x]; }}", "b32", "b32 b32 b32 b32")
    for t in ("u32", "f32"):
        moving(f"{own % 4}ldu.global.{t} d0, [x+4]; }}", "b32", "b32")


def orders():
    for name in each("{cta|cluster|gpu|sys}{|.global|.shared}.{b32|u32|u64}"):
        scope, *space, t = name.split(".")
        dot, address = ("." + space[0], {"global": "ga", "shared": "sa"}[space[0]]) if space else ("", "ga")
        b = bits_of(t)
        for store, load in (("relaxed", "acquire"), ("release", "relaxed")):
            moving(f"st.{store}.{scope}{dot}.{t} [{address}], a0; ld.{load}.{scope}{dot}.{t} d0, [{address}];", b, b)
    moving("st.mmio.relaxed.sys.global.u32 [ga], a0; ld.mmio.relaxed.sys.global.u32 d0, [ga];", "b32", "b32")
    moving("st.weak.global.u32 [ga], a0; ld.weak.global.u32 d0, [ga];", "b32", "b32")
    moving("st.volatile.global.v2.u32 [ga], {a0, a1}; ld.volatile.global.v2.u32 {d1, d0}, [ga];", "b32 b32", "b32 b32")
    moving("st.volatile.v2.u32 [ga], {a0, a1}; ld.volatile.v2.u32 {d1, d0}, [ga];", "b32 b32", "b32 b32")
    for hint in ("ca", "cg", "cs", "lu", "cv"):
        moving(f"st.global.u32 [ga], a0; membar.gl; ld.global.{hint}.u32 d0, [ga];", "b32", "b32")
    for hint in ("wb", "cg", "cs", "wt"):
        moving(f"st.global.{hint}.u32 [ga], a0; ld.global.u32 d0, [ga];", "b32", "b32")
    for name in ("wb.v4.u32", "cs.v4.u32", "cg.v4.b32"):
        moving(f"st.global.{name} [ga], {{a0, a1, a2, a1}}; ld.global.v4.b32 {{d0, d1, d2, d3}}, [ga];", "b32 b32 b32", "b32 b32 b32 b32")
    for name in each("ld.global.L1::no_allocate{|.L2::128B}.v4.b32"):
        moving(f"st.global.v4.b32 [ga], {{a0, a1, a2, a1}}; {name} {{d0, d1, d2, d3}}, [ga];", "b32 b32 b32", "b32 b32 b32 b32")
    for hint in each("prefetch{|.global}.{L1|L2}") + ["prefetchu.L1"]:
        moving(f"st.global.b32 [ga], a0; {hint} [ga]; ld.global.b32 d0, [ga];", "b32", "b32")
    moving("{ .local .align 16 .b8 own[32]; st.local.b32 [own], a0; prefetch.local.L1 [own]; prefetch.local.L2 [own]; ld.local.b32 d0, [own]; }", "b32", "b32")
    line = "{ .reg .b64 x; and.b64 x, ga, -128; "
    moving(f"{line}st.global.b32 [ga], a0; applypriority.global.L2::evict_normal [x], 128; ld.global.b32 d0, [ga]; }}", "b32", "b32")
    moving(f"{line}discard.global.L2 [x], 128; bar.sync 0; st.global.b32 [ga], a0; ld.global.b32 d0, [ga]; }}", "b32", "b32")
    moving(f"{line}st.global.b32 [ga], a0; fence.proxy.tensormap::generic.release.gpu; fence.proxy.tensormap::generic.acquire.gpu [x], 128; ld.global.b32 d0, [ga]; }}", "b32", "b32")
    for fence in each("membar.{cta|gl|sys}") + each("fence{|.sc|.acq_rel}.{cta|cluster|gpu|sys}") + each("fence.{acquire|release}.{cta|cluster|gpu|sys}") + each("fence.proxy.{alias|async|async.global|async.shared::cta}") + ["fence.mbarrier_init.release.cluster", "griddepcontrol.launch_dependents", "griddepcontrol.wait", "nanosleep.u32 20", "pmevent 1"]:
        moving(f"st.global.b32 [ga], a0; {fence}; ld.global.b32 d0, [ga];", "b32", "b32")


def addresses():
    for space, address in (("global", "ga"), ("shared", "x"), ("local", "x"), ("param", "x")):
        own = {"shared": "cvt.u64.u32 x, sa; ", "local": "mov.b64 x, own; ", "param": "mov.b64 x, p0; "}.get(space, "")
        moving(f"{{ .local .align 16 .b8 own[32]; .reg .b64 x, y; {own}cvta.{space}.u64 y, {address}; cvta.to.{space}.u64 y, y; sub.u64 d0, y, {address}; }}", "b32", "b64")
    for space in ("shared::cta", "shared::cluster"):
        moving(f"{{ .reg .b64 x, y; cvt.u64.u32 x, sa; cvta.{space}.u64 y, x; st.b32 [y], a0; cvta.to.{space}.u64 y, y; sub.u64 d0, y, x; ld.shared.b32 d1, [sa]; }}", "b32", "b64 b32")
    for asked in ("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param"):
        tests = ""
        for n, (space, own) in enumerate((("global", "mov.b64 x, ga; "), ("shared", "cvt.u64.u32 x, sa; "), ("local", "mov.b64 x, own; "))):
            tests += f"{own}cvta.{space}.u64 x, x; isspacep.{asked} p, x; selp.u32 d{n}, 1, 0, p; "
        moving(f"{{ .local .align 16 .b8 own[32]; .reg .b64 x; st.local.b32 [own], a0; {tests}}}", "b32", "b32 b32 b32")


def barriers():
    met = "xor.b32 d0, lane, 5; mad.lo.u32 d0, d0, 16, sbase; ld.shared.b32 d0, [d0];"
    for name in ("bar.sync", "barrier.sync", "barrier.sync.aligned", "barrier.cta.sync", "bar.cta.sync"):
        moving(f"st.shared.b32 [sa], a0; {name} 1; {met}", "b32", "b32")
    for name in ("bar.sync", "barrier.sync", "barrier.cta.sync.aligned"):
        moving(f"st.shared.b32 [sa], a0; mov.u32 t, 3; {name} t, 32; {met}", "b32", "b32")
    for name in ("bar.arrive", "barrier.arrive", "barrier.cta.arrive.aligned"):
        moving(f"st.shared.b32 [sa], a0; {name} 1, 64; bar.sync 1, 64; {met}", "b32", "b32")
    for name in each("{bar|barrier|barrier.cta}.red.popc{|.aligned}.u32"):
        moving(f"setp.lt.s32 p, a0, 0; {name} d0, 1, p;", "b32", "b32")
        moving(f"setp.lt.s32 p, a0, 0; {name} d0, 2, 32, !p;", "b32", "b32")
    for name in each("{bar|barrier|barrier.cta}.red.{and|or}.pred"):
        moving(f"setp.gt.s32 p, a0, -1000; {name} q, 1, p; selp.u32 d0, 1, 0, q;", "b32", "b32")


def mbarriers():
    """Each lane makes a barrier of 8 bytes, which is its own."""
    own = "{ .reg .b64 state; .reg .b32 left; "
    wide = "{ .reg .b64 state, ga; .reg .b32 left; cvt.u64.u32 ga, sa; cvta.shared.u64 ga, ga; "
    for space, at, declared in (("", "ga", wide), (".shared", "sa", own)):
        begin = f"{declared}mbarrier.init{space}.b64 [{at}], 3; "
        for drop in ("arrive", "arrive_drop"):
            ask = f"mbarrier.pending_count.b64 d0, state; mbarrier.test_wait{space}.b64 p, [{at}], state; selp.u32 d1, 1, 0, p; "
            again = f"mbarrier.{drop}{space}.b64 state, [{at}], 2; mbarrier.try_wait.parity{space}.b64 q, [{at}], 0; selp.u32 d2, 1, 0, q; mbarrier.inval{space}.b64 [{at}]; }}"
            moving(f"{begin}mbarrier.{drop}{space}.b64 state, [{at}]; {ask}{again}", "b32", "b32 b32 b32")
            moving(f"{begin}mbarrier.{drop}.noComplete{space}.b64 state, [{at}], 1; {ask}{again}", "b32", "b32 b32 b32")
            moving(f"{begin}mbarrier.{drop}.noComplete.release.cta{space}.b64 state, [{at}], 1; {ask}{again}", "b32", "b32 b32 b32")
            for order in ("", ".release.cta", ".relaxed.cta"):
                moving(f"{begin}mbarrier.{drop}.expect_tx{order}{space}.b64 state, [{at}], 16; {ask}mbarrier.complete_tx{'.relaxed.cta' if order else ''}{space}.b64 [{at}], 16; {again}", "b32", "b32 b32 b32")
    begin = f"{own}mbarrier.init.shared.b64 [sa], 2; "
    waits = each("mbarrier.{test_wait|try_wait}{|.acquire.cta|.relaxed.cta|.acquire.cluster|.relaxed.cluster}.shared::cta.b64")
    arrivals = each("mbarrier.{arrive|arrive_drop}{.release.cta|}.shared::cta.b64 state, [sa]") + each("mbarrier.{arrive|arrive_drop}.expect_tx{|.release.cta|.relaxed.cta}.shared::cta.b64 state, [sa], 0")
    for arrive, wait in zip(arrivals, waits):
        moving(f"{begin}{arrive}; mbarrier.pending_count.b64 d0, state; {wait} p, [sa], state; selp.u32 d1, 1, 0, p; mbarrier.arrive.shared.b64 _, [sa]; {wait} p, [sa], state; selp.u32 d2, 1, 0, p; }}", "b32", "b32 b32 b32")
    for wait in each("mbarrier.{test_wait|try_wait}.parity{|.shared|.shared::cta}.b64"):
        at = "[sa]" if "shared" in wait else "[wide]"
        moving(f"{{ .reg .b64 wide; cvt.u64.u32 wide, sa; cvta.shared.u64 wide, wide; mbarrier.init.shared.b64 [sa], 1; {wait} p, {at}, 1; selp.u32 d0, 1, 0, p; mbarrier.arrive.shared.b64 _, [sa]; {wait} p, {at}, 0; selp.u32 d1, 1, 0, p; {wait} q, {at}, 1; selp.u32 d2, 1, 0, q; }}", "b32", "b32 b32 b32")
    wide = begin.replace("state;", "state, wa; cvt.u64.u32 wa, sa; cvta.shared.u64 wa, wa;", 1)
    moving(f"{wide}mbarrier.arrive.shared.b64 state, [sa], 2; mbarrier.try_wait.b64 p, [wa], state; selp.u32 d0, 1, 0, p; mbarrier.try_wait.shared.b64 p, [sa], state; selp.u32 d1, 1, 0, p; }}", "b32", "b32 b32")
    for order in each("{|.acquire.cta|.acquire.cluster}"):
        moving(f"{begin}mbarrier.arrive.shared.b64 state, [sa]; mbarrier.try_wait{order}.shared::cta.b64 p, [sa], state, 10; selp.u32 d0, 1, 0, p; mbarrier.try_wait.parity{order}.shared::cta.b64 p, [sa], 1, 10; selp.u32 d1, 1, 0, p; }}", "b32", "b32 b32")
    for what in each("mbarrier.{expect_tx|complete_tx}{|.relaxed.cta|.relaxed.cluster}{.shared|.shared::cta|.shared::cluster|}.b64"):
        other = what.replace("expect_tx", "complete_tx") if "expect" in what else what.replace("complete_tx", "expect_tx")
        first, second = (what, other) if "expect" in what else (other, what)
        at, declared = ("sa", begin) if "shared" in what else ("wa", begin.replace("state;", "state, wa; cvt.u64.u32 wa, sa; cvta.shared.u64 wa, wa;", 1))
        moving(f"{declared}{first} [{at}], 32; mbarrier.arrive.shared.b64 state, [sa], 2; mbarrier.test_wait.shared.b64 p, [sa], state; selp.u32 d0, 1, 0, p; {second} [{at}], 32; mbarrier.test_wait.shared.b64 p, [sa], state; selp.u32 d1, 1, 0, p; }}", "b32", "b32 b32")
    far = "{ .reg .b32 far; mapa.shared::cluster.u32 far, sa, 0; mbarrier.init.shared.b64 [sa], 1; "
    for drop in ("arrive", "arrive_drop"):
        for order in ("expect_tx.release", "release"):
            tx = ", 0" if "tx" in order else ""
            moving(f"{far}mbarrier.{drop}.{order}.cluster.shared::cluster.b64 _, [far]{tx}; mbarrier.test_wait.parity.shared.b64 p, [sa], 0; selp.u32 d0, 1, 0, p; }}", "b32", "b32")


def copies():
    begin = "st.global.v4.b32 [ga], {a0, a1, a2, a0}; st.shared.v4.b32 [sa], {0, 0, 0, 0}; membar.gl; "
    end = "ld.shared.v4.b32 {d0, d1, d2, d3}, [sa];"
    done = "cp.async.commit_group; cp.async.wait_group 0; "
    for copy in ("cp.async.ca.shared.global [sa], [ga], 16", "cp.async.cg.shared.global [sa], [ga], 16", "cp.async.ca.shared.global.L2::128B [sa], [ga], 8", "cp.async.ca.shared.global [sa], [ga], 4", "cp.async.cg.shared.global [sa], [ga], 16, lane"):
        body = copy if "lane" not in copy else "and.b32 t, lane, 15; " + copy.replace("lane", "t")
        moving(f"{begin}{body}; {done}{end}", "b32 b32 b32", "b32 b32 b32 b32")
    moving(f"{begin}setp.lt.s32 p, a1, 0; cp.async.ca.shared.global [sa], [ga], 4, p; cp.async.wait_all; {end}", "b32 b32 b32", "b32 b32 b32 b32")
    bar = "{ .shared .align 8 .b64 bar; .reg .b32 ba; mov.b32 ba, bar; "
    wait = "wait: mbarrier.try_wait.parity.shared.b64 p, [ba], 0; @!p bra wait; "
    for noinc, count in (("", 32), (".noinc", 32)):
        for space in ("", ".shared"):
            address = "ba" if space else "wide"
            wide = "" if space else ".reg .b64 wide; cvt.u64.u32 wide, ba; cvta.shared.u64 wide, wide; "
            arrive = "" if noinc else "mbarrier.arrive.shared.b64 _, [ba]; "
            moving(f"{begin}{bar}{wide}setp.eq.u32 q, lane, 0; @q mbarrier.init.shared.b64 [ba], {count}; bar.sync 0; cp.async.ca.shared.global [sa], [ga], 16; cp.async.mbarrier.arrive{noinc}{space}.b64 [{address}]; {arrive}{wait}{end} }}", "b32 b32 b32", "b32 b32 b32 b32")
    first = "setp.eq.u32 q, lane, 0; "
    for space in ("shared::cluster", "shared::cta"):
        moving(f"{begin}fence.proxy.async; bar.sync 0; {bar}{first}@q mbarrier.init.shared.b64 [ba], 1; @q fence.mbarrier_init.release.cluster; bar.sync 0; @q mbarrier.arrive.expect_tx.shared.b64 _, [ba], 512; @q cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes [sbase], [ga], 512, [ba]; {wait}{end} }}", "b32 b32 b32", "b32 b32 b32 b32")
        moving(f"{begin}fence.proxy.async; bar.sync 0; {bar}.reg .b64 hint; createpolicy.fractional.L2::evict_last.b64 hint, 0.5; {first}@q mbarrier.init.shared.b64 [ba], 1; @q fence.mbarrier_init.release.cluster; bar.sync 0; @q mbarrier.arrive.expect_tx.shared.b64 _, [ba], 512; @q cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes.L2::cache_hint [sbase], [ga], 512, [ba], hint; {wait}{end} }}", "b32 b32 b32", "b32 b32 b32 b32")
    swapped = "st.shared.v4.b32 [sa], {a0, a1, a2, a1}; st.global.v4.b32 [ga], {a2, a2, a1, a0}; membar.gl; fence.proxy.async; bar.sync 0; " + first
    finish = "@q cp.async.bulk.commit_group; @q cp.async.bulk.wait_group 0; bar.sync 0; fence.proxy.async; ld.global.v4.b32 {d0, d1, d2, d3}, [ga];"
    moving(f"{swapped}@q cp.async.bulk.global.shared::cta.bulk_group [ga], [sbase], 512; {finish}", "b32 b32 b32", "b32 b32 b32 b32")
    moving(f"{{ .reg .b64 hint; createpolicy.fractional.L2::evict_last.b64 hint, 0.5; {swapped}@q cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [ga], [sbase], 512, hint; {finish} }}", "b32 b32 b32", "b32 b32 b32 b32")
    moving(f"{swapped}@q cp.async.bulk.prefetch.L2.global [ga], 512; @q cp.async.bulk.global.shared::cta.bulk_group [ga], [sbase], 256; @q cp.async.bulk.commit_group; @q cp.async.bulk.wait_group.read 0; @q cp.async.bulk.wait_group 0; bar.sync 0; fence.proxy.async; ld.global.v4.b32 {{d0, d1, d2, d3}}, [ga];", "b32 b32 b32", "b32 b32 b32 b32")
    for name in each("{add|min|max}.{u32|s32|u64}") + each("{and|or|xor}.{b32|b64}") + each("{inc|dec}.u32"):
        moving(f"{swapped}@q cp.reduce.async.bulk.global.shared::cta.bulk_group.{name} [ga], [sbase], 512; {finish}", "b32 b32 b32", "b32 b32 b32 b32")
    for name, kind in (("add.f32", "f32"), ("add.noftz.f16", "f16x2"), ("add.noftz.bf16", "bf16x2"), ("min.f16", "f16x2"), ("max.f16", "f16x2"), ("min.bf16", "bf16x2"), ("max.bf16", "bf16x2")):
        form(f"{swapped}@q cp.reduce.async.bulk.global.shared::cta.bulk_group.{name} [ga], [sbase], 512; {finish}", f"{kind} {kind} {kind}", "b32 b32 b32 b32")
    doubles = swapped.replace("v4.b32 [sa], {a0, a1, a2, a1}", "v2.b64 [sa], {a0, a1}").replace("v4.b32 [ga], {a2, a2, a1, a0}", "v2.b64 [ga], {a1, a1}")
    form(f"{doubles}@q cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f64 [ga], [sbase], 512; {finish.replace('v4.b32 {d0, d1, d2, d3}', 'v2.b64 {d0, d1}')}", "f64 f64", "b64 b64")
    for name in ("and.b32", "or.b32", "xor.b32", "add.u32", "add.s32", "min.s32", "max.u32", "inc.u32", "dec.u32", "add.u64"):
        moving(f"{{ .shared .align 16 .b8 other[512]; .shared .align 8 .b64 bar; .reg .b32 ba, oa, ob; mov.b32 ba, bar; mov.b32 oa, other; mapa.shared::cluster.u32 oa, oa, 0; mad.lo.u32 ob, lane, 16, oa; st.shared.v4.b32 [sa], {{a0, a1, a2, a1}}; st.shared::cluster.v4.b32 [ob], {{a2, a2, a1, a0}}; {first}@q mbarrier.init.shared.b64 [ba], 1; @q fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0; @q mbarrier.arrive.expect_tx.shared.b64 _, [ba], 512; mapa.shared::cluster.u32 t, ba, 0; @q cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{name} [oa], [sbase], 512, [t]; {wait}ld.shared::cluster.v4.b32 {{d0, d1, d2, d3}}, [ob]; }}", "b32 b32 b32", "b32 b32 b32 b32")
    moving(f"{{ .shared .align 16 .b8 other[512]; .shared .align 8 .b64 bar; .reg .b32 ba, oa, ob; mov.b32 ba, bar; mov.b32 oa, other; mapa.shared::cluster.u32 oa, oa, 0; mad.lo.u32 ob, lane, 16, oa; st.shared.v4.b32 [sa], {{a0, a1, a2, a1}}; {first}@q mbarrier.init.shared.b64 [ba], 1; @q fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0; @q mbarrier.arrive.expect_tx.shared.b64 _, [ba], 512; mapa.shared::cluster.u32 t, ba, 0; @q cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [oa], [sbase], 512, [t]; {wait}ld.shared::cluster.v4.b32 {{d0, d1, d2, d3}}, [ob]; }}", "b32 b32 b32", "b32 b32 b32 b32")


def sent():
    """Stores and reductions that count at a barrier when they have arrived."""
    begin = "{ .shared .align 16 .b8 other[512]; .shared .align 8 .b64 bar; .reg .b32 ba, oa, ra, rb; .reg .b64 wa, wb; mov.b32 ba, bar; mov.b32 oa, other; mad.lo.u32 oa, lane, 16, oa; mapa.shared::cluster.u32 ra, oa, 0; mapa.shared::cluster.u32 rb, ba, 0; cvt.u64.u32 wa, ra; cvta.shared::cluster.u64 wa, wa; cvt.u64.u32 wb, rb; cvta.shared::cluster.u64 wb, wb; "
    meet = "setp.eq.u32 q, lane, 0; @q mbarrier.init.shared.b64 [ba], 1; bar.sync 0; @q mbarrier.arrive.expect_tx.shared.b64 _, [ba], {}; bar.sync 0; "
    wait = "wait: mbarrier.try_wait.parity.shared.b64 p, [ba], 0; @!p bra wait; "

    def places(name):
        return ("ra", "rb") if "shared" in name else ("wa", "wb")

    for name, size, values in [(f".{t}", 4 if t[1:] == "32" else 8, "a1") for t in ("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64")] + [(".v2.b32", 8, "{a1, a0}"), (".v2.b64", 16, "{a1, a0}"), (".v4.b32", 16, "{a1, a0, a0, a1}")]:
        b = bits_of(name.split(".")[-1])
        for store in each("st.async{|.weak}{|.shared::cluster}"):
            to, at = places(store)
            moving(f"{begin}st.shared.v2.b64 [oa], {{0, 0}}; {meet.format(32 * size)}{store}.mbarrier::complete_tx::bytes{name} [{to}], {values}, [{at}]; {wait}ld.shared.v2.b64 {{d0, d1}}, [oa]; }}", f"{b} {b}", "b64 b64")
    for name in ("add.u32", "add.s32", "add.u64", "min.u32", "min.s32", "max.u32", "max.s32", "inc.u32", "dec.u32", "and.b32", "or.b32", "xor.b32"):
        b = bits_of(name.split(".")[-1])
        for reduce in each("red.async{|.relaxed.cluster}{|.shared::cluster}"):
            to, at = places(reduce)
            moving(f"{begin}st.shared.{b} [oa], a0; {meet.format(4 * int(b[1:]))}{reduce}.mbarrier::complete_tx::bytes.{name} [{to}], a1, [{at}]; {wait}ld.shared.{b} d0, [oa]; }}", f"{b} {b}", b)


def add():
    for part in (atomics, clusters, loads_and_stores, kept, orders, addresses, barriers, mbarriers, copies, sent):
        part()
