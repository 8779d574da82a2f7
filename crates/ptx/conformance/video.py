"""The forms of video instructions: on whole words or a part of them, and on two or four parts at once."""

from form import each, moving, op

PARTS = ["", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"]
COMPARE = "{eq|ne|lt|le|gt|ge}"


class Turns:
    """The next one of some choices, again and again."""

    def __init__(self, choices):
        self.choices, self.at = choices, 0

    def next(self):
        self.at += 1
        return self.choices[self.at % len(self.choices)]


# For words and parts of them, ptxas makes code that gives other results than PTX's manual says with `.sat`,
# with a second operation `.min` or `.max`, with a result in `.h1`, and with a scale of `vmad`. These forms
# are refused, and not here.


def parts():
    """One operation: without a third operand, then with a second operation, then merged into a word."""
    # The numbers of choices have no common factor with each other.
    first, second, into = Turns(PARTS), Turns(PARTS[:5]), Turns(PARTS[1:6])
    names = each("{vadd|vsub|vabsdiff|vmin|vmax}.{u32|s32}.{u32|s32}.{u32|s32}")
    names += each("{vshl|vshr}.{u32|s32}.{u32|s32}.u32.{clamp|wrap}")
    names += each(f"vset.{{u32|s32}}.{{u32|s32}}.{COMPARE}")
    for name in names:
        moving(f"{name} d0, a0, a1;", "b32 b32", "b32")
        for _ in range(3):
            moving(f"{name} d0, a0{first.next()}, a1{second.next()};", "b32 b32", "b32")
            moving(f"{name}.add d0, a0{first.next()}, a1{second.next()}, a2;", "b32 b32 b32", "b32")
            moving(f"{name} d0{into.next()}, a0{first.next()}, a1{second.next()}, a2;", "b32 b32 b32", "b32")


def products():
    first, second = Turns(PARTS), Turns(PARTS[:5])
    for name in each("vmad.{u32|s32}.{u32|s32}.{u32|s32}"):
        for signs in ("   ", "-  ", " - ", "-- ", "  -"):
            a, b, c = (sign.strip() for sign in signs)
            moving(f"{name} d0, {a}a0, {b}a1, {c}a2;", "b32 b32 b32", "b32")
            moving(f"{name} d0, {a}a0{first.next()}, {b}a1{second.next()}, {c}a2;", "b32 b32 b32", "b32")
        moving(f"{name}.po d0, a0, a1, a2;", "b32 b32 b32", "b32")
        moving(f"{name}.po d0, a0{first.next()}, a1{second.next()}, a2;", "b32 b32 b32", "b32")


def together():
    names = ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
    for name in [name + lanes for lanes in "24" for name in names]:
        for form_of in each(name + ".{u32|s32}.{u32|s32}.{u32|s32}{|.sat|.add}"):
            op(form_of, "b32 b32 b32", "b32")
    chosen = {
        "2": (Turns([".h0", ".h1", ".h10"]), Turns([".h10", ".h32", ".h03", ".h20", ".h11"]), Turns([".h32", ".h01", ".h23", ".h33"])),
        "4": (Turns([".b0", ".b21", ".b3210", ".b31", ".b2", ".b310"]), Turns([".b3210", ".b7654", ".b0246", ".b5107", ".b1111"]), Turns([".b7654", ".b0123", ".b4567", ".b2064"])),
    }
    for lanes in "24":
        mask, first, second = chosen[lanes]
        all_names = each("{vadd|vsub|vavrg|vabsdiff|vmin|vmax}" + lanes + ".{u32|s32}.{u32|s32}.{u32|s32}{|.sat|.add}")
        compares = each(f"vset{lanes}.{{u32|s32}}.{{u32|s32}}.{COMPARE}{{|.add}}")
        for name in compares:
            moving(f"{name} d0, a0, a1, a2;", "b32 b32 b32", "b32")
        for name in all_names + compares:
            moving(f"{name} d0{mask.next()}, a0{first.next()}, a1{second.next()}, a2;", "b32 b32 b32", "b32")


def add():
    for part in (parts, products, together):
        part()
