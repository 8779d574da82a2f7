"""The instruction forms of constants, of parameters, of calls and of the ends of threads."""

from form import each, moving, register_of

TYPES = "{b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64}"


def constants():
    begin = "{ .reg .b64 x, y, z; and.b32 t, a0, 3; mul.wide.u32 y, t, 16; mov.u64 x, constants; add.u64 x, x, y; "
    for t in each(TYPES):
        b = register_of(t)
        moving(f"{begin}ld.const.{t} d0, [x]; ld.const.{t} d1, [x+8]; }}", "b32", f"{b} {b}")
        if t[0] != "s":
            moving(f"{begin}ld.const.v2.{t} {{d1, d0}}, [x]; }}", "b32", f"{b} {b}")
        if t in ("b8", "b16", "b32", "u8", "u16", "u32", "f32"):
            moving(f"{begin}ld.const.v4.{t} {{d2, d1, d0, d3}}, [x]; }}", "b32", f"{b} {b} {b} {b}")
    moving(f"{begin}cvta.const.u64 y, x; ld.b32 d0, [y]; cvta.to.const.u64 z, y; ld.const.b32 d1, [z+4]; sub.u64 d2, z, x; }}", "b32", "b32 b32 b64")


def parameters():
    """A function gives its 16 bytes back."""
    begin = "{ .param .align 16 .b8 frame[16]; .param .align 16 .b8 back[16]; st.param.v4.b32 [frame], {0, 0, 0, 0}; "
    call = "call.uni (back), copied, (frame); "
    for t in each(TYPES):
        b = register_of(t)
        # ptxas inlines the call, and leaves the bits beyond a byte in the register that is the parameter.
        byte = "and.b16 a0, a0, 255; " if t[1:] == "8" else ""
        moving(f"{begin}{byte}st.param.{t} [frame+8], a0; {call}ld.param.{t} d0, [back+8]; ld.param.b64 d1, [back+8]; }}", b, f"{b} b64")
    for t in ("b8", "u8", "b32", "u32", "b64"):
        b, s = register_of(t), t.replace("u", "b")
        moving(f"{begin}st.param.v2.{s} [frame], {{a0, a1}}; {call}ld.param.v2.{t} {{d1, d0}}, [back]; }}", f"{b} {b}", f"{b} {b}")
    for t in ("b8", "u8", "b32"):
        b, s = register_of(t), t.replace("u", "b")
        moving(f"{begin}st.param.v4.{s} [frame], {{a0, a1, a2, a0}}; {call}ld.param.v4.{t} {{d2, d1, d0, d3}}, [back]; }}", f"{b} {b} {b}", f"{b} {b} {b} {b}")


def calls():
    for call in ("call.uni", "call"):
        moving(f"mov.b32 d0, a0; {call} empty_function; add.u32 d1, d0, a0;", "b32", "b32 b32")
    keep = "ld.param.u64 at, [p1]; cvta.to.global.u64 at, at; mul.wide.u32 n8, n, 4; add.u64 at, at, n8; st.global.b32 [at], a0; "
    for end in ("ret", "exit"):
        moving(f"{keep}setp.lt.s32 p, a0, 0; @p {end}; add.u32 d0, a0, 7;", "b32", "b32")
    moving(f"{keep}mov.b32 d0, 7; setp.le.u32 p, lane, 31; @p ret.uni;", "b32", "b32")


def add():
    for part in (constants, parameters, calls):
        part()
