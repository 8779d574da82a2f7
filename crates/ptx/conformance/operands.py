"""Operands of the instruction forms: edge cases crossed, then seeded random ones.

`tests/conformance/operands.rs` makes the same list. Operands are therefore not recorded.
"""

MASK = (1 << 64) - 1

F32 = [0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001, 0x7F7FFFFF, 0x80800000, 0xFFA00001, 0x807FFFFF, 0x00800000, 0x3F7FFFFF, 0x3F800001, 0x40490FDB, 0x3EAAAAAB, 0x4B800001, 0xCF000000, 0x00FFFFFF, 0x3F000000, 0xC0200000, 0x5F800000, 0x7FFFFFFF, 0x7F000000, 0x80000001]
F64 = [0x0000000000000000, 0x8000000000000000, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x0000000000000001, 0x7FEFFFFFFFFFFFFF, 0x8010000000000000, 0xFFF4000000000001, 0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x3FEFFFFFFFFFFFFF, 0x3FF0000000000001, 0x400921FB54442D18, 0x3FD5555555555555, 0x4340000000000001, 0xC1E0000000000000, 0x3810000000000000, 0x36A0000000000000, 0xC004000000000000, 0x47EFFFFFF0000000, 0x380FFFFFFFFFFFFF, 0x43F0000000000000, 0x8000000000000001]
F16 = [0x0000, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0x0001, 0x7BFF, 0x8400, 0xFD01, 0x83FF, 0x0400, 0x3BFF, 0x3C01, 0x4248, 0x3555, 0x6801, 0xF800, 0x07FF, 0x3800, 0xC100, 0x7800, 0x7FFF, 0x7C01, 0x8001]
BF16 = [0x0000, 0x8000, 0x3F80, 0xBF80, 0x7F80, 0xFF80, 0x7FC0, 0x0001, 0x7F7F, 0x8080, 0xFFA1, 0x807F, 0x0080, 0x3F7F, 0x3F81, 0x4049, 0x3EAB, 0x4B81, 0xCF00, 0x00FF, 0x3F00, 0xC020, 0x5F80, 0x7FFF, 0x7F00, 0x8001]
I64 = [0, 1, MASK, 1 << 63, (1 << 63) - 1, 2, 7, 0xFFFFFFFF, 0x80000000, MASK - 1, 0x7FFFFFFF, 0xFF, 0x80, 0x7F, 0x8000, 0x7FFF, 0xFFFF, 0x100000001, 0xFFFFFF, 0x800000, 0x1000001, 3, 31, 32, 0x5555555555555555, 0xFFFFFFFFFFFFFF80]
SHIFT = [0, 1, 31, 32, 33, 63, 64, 8, 255, 256, 0xFFFFFFFF, 16, 30, 62, 65, 7, 24, 4, 12, 128, 0x80000000, 5, 48, 100, 257, 2]

BITS = {"f32": 32, "f64": 64, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "b8": 8, "b16": 16, "b32": 32, "b64": 64, "shift": 32, "lane": 32, "near16": 32, "nearb16": 32, "near32": 32, "near64": 64, "nan64": 64}

# Of each type: the bits, those of the fraction, and the bias of the exponent.
FLOATS = {"f16": (16, 10, 15), "bf16": (16, 7, 127), "f32": (32, 23, 127), "f64": (64, 52, 1023)}
# Of each type: the least and the greatest exponent of the next narrower one.
NARROWER = {"f16": (9, 23), "bf16": (113, 142), "f32": (113, 142), "f64": (897, 1150)}

# How many edge cases of each operand are crossed, and how many cases follow in all.
CROSSED = {1: 26, 2: 22, 3: 9}
CASES = {1: 224, 2: 672, 3: 928}
# The cases of floats that are near the limits of their types.
NEAR_LIMITS = {1: 64, 2: 160, 3: 224}
# The cases of a form that only moves bits, and of one with more operands.
FEW, MANY = 64, 256


def edges(kind):
    if kind in ("f32", "f64", "f16", "bf16"):
        return {"f32": F32, "f64": F64, "f16": F16, "bf16": BF16}[kind]
    if kind in ("f16x2", "bf16x2"):
        one = F16 if kind == "f16x2" else BF16
        return [a | one[(i * 7 + 3) % 26] << 16 for i, a in enumerate(one)]
    if kind == "shift":
        return SHIFT
    bits = BITS[kind]
    return [a & ((1 << bits) - 1) for a in I64]


class Random:
    """SplitMix64, seeded by the first word of a form and its kinds (FNV-1a).

    Forms that differ in modifiers have the same operands, and their results compress well.
    """

    def __init__(self, text):
        self.state = 0xCBF29CE484222325
        for byte in text.encode():
            self.state = ((self.state ^ byte) * 0x100000001B3) & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return z ^ z >> 31


def near(random, bits, fraction, bias, spread):
    """A float with an exponent near that of one."""
    r = random.next()
    exponent = bias - spread + (r >> 56) % (2 * spread + 1)
    return (r >> 55 & 1) << (bits - 1) | exponent << fraction | r & ((1 << fraction) - 1)


def draw(random, kind):
    """One random operand. Floats have any bits or an exponent near that of one; integers any size."""
    if kind == "lane":
        return random.next() & 31
    if kind == "near16":
        return near(random, 16, 10, 15, 3) | near(random, 16, 10, 15, 3) << 16
    if kind == "nearb16":
        return near(random, 16, 7, 127, 6) | near(random, 16, 7, 127, 6) << 16
    if kind == "near32":
        return near(random, 32, 23, 127, 6)
    if kind == "near64":
        return near(random, 64, 52, 1023, 6)
    if kind == "nan64":
        sign, special = random.next() & 1 << 63, random.next() & 3
        return sign | (0x7FF0000000000000 | random.next() >> 12, 0x7FF0000000000000, 0, 0x3FF0000000000000)[special]
    choice = random.next() & 3
    if kind == "f32" and choice:
        return near(random, 32, 23, 127, (2, 12, 40)[choice - 1])
    if kind == "f64" and choice:
        return near(random, 64, 52, 1023, (2, 20, 70)[choice - 1])
    if kind == "f16" and choice:
        return near(random, 16, 10, 15, (2, 5, 14)[choice - 1])
    if kind == "bf16" and choice:
        return near(random, 16, 7, 127, (2, 6, 20)[choice - 1])
    if kind in ("f16x2", "bf16x2"):
        low = draw(random, kind[:-2])
        return low | draw(random, kind[:-2]) << 16
    bits = BITS[kind]
    value = random.next() >> (64 - bits)
    if kind == "shift":
        return value & 63
    if kind in ("b8", "b16", "b32", "b64") and choice == 3:
        return value >> (random.next() % bits)
    return value


def near_limits(random, kind):
    """A float from which, or with which, a result is near the least normal number or the greatest one."""
    if kind in ("f16x2", "bf16x2"):
        low = near_limits(random, kind[:-2])
        return low | near_limits(random, kind[:-2]) << 16
    if kind not in FLOATS:
        return draw(random, kind)
    bits, fraction, bias = FLOATS[kind]
    least, greatest = NARROWER[kind]
    r = random.next()
    few = (r >> 8) % 5
    exponent = (few, (bias + 1) // 2 + few - 2, (bias + 1) // 2 + few - 2, bias + bias // 2 + few - 2, bias + few - 2, few, least - (r >> 8) % fraction + 2, greatest + few - 2)[r & 7]
    low = random.next() & (1 << fraction) - 1
    low = (low, 0, (1 << fraction) - 1, 1 << low % fraction)[r >> 16 & 3]
    return (r >> 32 & 1) << (bits - 1) | exponent << fraction | low


def count_of(kinds, few):
    """The cases of a form: a multiple of 32."""
    if few or len(kinds) not in CASES:
        return FEW if few else MANY
    return CASES[len(kinds)] + (NEAR_LIMITS[len(kinds)] if is_float(kinds) else 0)


def is_float(kinds):
    return any(kind.removesuffix("x2") in FLOATS for kind in kinds)


def cases(text, kinds, total):
    """The operands of so many cases of a form, as tuples."""
    random = Random(" ".join([text.split(".")[0], *kinds]))
    count = len(kinds)
    found = []
    if count in CROSSED and CROSSED[count] ** count <= total and not {"lane", "nan64"} & set(kinds):
        width = CROSSED[count]
        lists = [edges(kind) for kind in kinds]
        for n in range(width**count):
            found.append(tuple(one[n // width**k % width] for k, one in enumerate(lists)))
    of_limits = (total - len(found)) // 2 if count in CROSSED and is_float(kinds) else 0
    while len(found) < total - of_limits:
        found.append(tuple(draw(random, kind) for kind in kinds))
    while len(found) < total:
        found.append(tuple(near_limits(random, kind) for kind in kinds))
    return found
