"""The list of instruction forms, and short ways to add to it.

A form has a body of PTX, the kinds of its operands, and the sizes of its results. A body reads `a0`,
`a1`, … and writes `d0`, `d1`, …. Predicates `p` and `q`, words `t` and `lane` (the lane's number), a
shared address `sa` and a global address `ga` of 16 bytes for each thread are there too.
"""

FORMS = []

# Declarations before the kernel of a form that has their name.
DECLARED = {
    "constants": ".const .align 16 .b32 constants[20] = {" + ", ".join(str((0x9E3779B9 * n + 0x7F4A7C15) % 2**32) for n in range(20)) + "};",
    "copied": ".func (.param .align 16 .b8 back[16]) copied(.param .align 16 .b8 given[16]) { .reg .b32 r<4>; ld.param.v4.b32 {r0, r1, r2, r3}, [given]; st.param.v4.b32 [back], {r0, r1, r2, r3}; ret; }",
    "empty_function": ".func empty_function() { ret; }",
}

SMALL = ["u16", "s16"]
WORD = ["u32", "s32"]
LONG = ["u64", "s64"]


def form(body, kinds, results, few=False):
    """A form. One that only moves bits needs `few` cases."""
    FORMS.append((body, tuple(kinds.split()), tuple(results.split()), few))


def moving(body, kinds, results):
    """A form that only moves bits."""
    form(body, kinds, results, few=True)


def op(name, kinds, result):
    """An instruction with one result."""
    operands = ", ".join(f"a{i}" for i in range(len(kinds.split())))
    form(f"{name} d0, {operands};", kinds, result)


def each(pattern):
    """All texts of a pattern with alternatives in braces: `add{|.sat}.s32`."""
    before, brace, rest = pattern.partition("{")
    if not brace:
        return [pattern]
    choices, _, after = rest.partition("}")
    return [before + choice + end for choice in choices.split("|") for end in each(after)]


def bits_of(t):
    """The size of a type, as a kind."""
    return "b" + "".join(c for c in t.split("x")[0] if c.isdigit()) if t[-2:] != "x2" else "b32"


def kind_of(t):
    """The kind of operands for a type: floats have edge cases of their own."""
    return t if t[0] == "f" or t[:2] == "bf" else bits_of(t)


def register_of(t):
    """The kind of a register for a type: registers have at least 16 bits."""
    return "b16" if t[1:] == "8" else bits_of(t)
