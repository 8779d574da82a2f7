"""Compares a simulated driver with a GPU over many random operands, by hashes of the results.

    python3 hashes.py HASHES.json              with the `libcuda.so.1` that is found first
    python3 hashes.py --compare ONE.json OTHER.json

Each form of `../data/forms.txt` that is one instruction of registers runs in a loop of 96 rounds in 2,048
threads. In one of four rounds operands have any bits, in the others exponents near each other. A warp's hash
is of all its results. It needs libcuda and nothing else.
"""

import json
import re
import sys
import zlib
from pathlib import Path

from operands import BITS
from record import HEADER, Gpu

ROUNDS, THREADS, BLOCK = 96, 2048, 256
# These are about lanes, memory and time.
LEFT_OUT = re.compile(r"ld|st|bar|activemask|elect|mma|nanosleep")
# Masks and bits of operands for three of four rounds: halves, halves near 2^-14, and singles near each other.
NEAR = [
    (0x83FF83FF, 0x38003800, 0x83FF83FF, 0x3C003C00),
    (0x81FF81FF, 0, 0x83FF83FF, 0x3C003C00),
    (0x81FFFFFF, 0x3E000000, 0x83FFFFFF, 0x3C000000),
]


def forms():
    """The forms: body, kinds of the operands, sizes of the results."""
    index = Path(__file__).parent / "../data/forms.txt"
    lines = [line.split("\t") for line in index.read_text().splitlines()]
    for body, (kinds, sizes) in {body: rest for body, *rest, _ in lines}.items():
        is_one = body.count(";") == 1 and body.endswith(";")
        if is_one and not LEFT_OUT.match(body) and not re.search(r"\b(ga|sa|sbase|lane)\b", body):
            yield body, kinds.split(), sizes.split()


def operand(index, kind):
    """Declares an operand, and fills it from the random words `a`, `b` and `c`."""
    bits = max(16, BITS[kind])
    first, second = "abc"[index % 3], "abc"[(index + 1) % 3]
    fill = {16: f"{{ .reg .b16 rest; mov.b32 {{a{index}, rest}}, {first}; }}", 32: f"mov.b32 a{index}, {first};"}
    text = fill.get(bits, f"mov.b64 a{index}, {{{second}, {first}}};")
    if kind in ("shift", "lane"):
        text = f"and.b32 a{index}, {first}, 63;"
    return f".reg .b{bits} a{index};", text


def result(index, size):
    """Declares a result, and adds it to the hash `h`."""
    bits = max(16, BITS[size])
    taken = {16: f"cvt.u32.u16 d, d{index};", 32: f"mov.b32 d, d{index};"}
    text = taken.get(bits, f"mov.b64 {{d, x}}, d{index}; xor.b32 d, d, x;")
    return f".reg .b{bits} d{index};", f"{text} mad.lo.u32 h, h, 31, d; shr.u32 x, h, 17; xor.b32 h, h, x;"


def kernel(index, body, kinds, sizes):
    """The text of a form's kernel."""
    declared, filled = zip(*(operand(*each) for each in enumerate(kinds)))
    results, hashed = zip(*(result(*each) for each in enumerate(sizes)))
    step = "mad.lo.u32 s, s, 1664525, 1013904223; shr.u32 x, s, {}; xor.b32 {}, s, x;"
    near = [
        f"setp.eq.u32 again, x, {turn}; @again and.b32 a, a, {mask}; @again or.b32 a, a, {bits};"
        f"@again and.b32 b, b, {mask}; @again or.b32 b, b, {other_bits};"
        f"@again and.b32 c, c, {other_mask}; @again or.b32 c, c, {bits};"
        for turn, (mask, bits, other_mask, other_bits) in enumerate(NEAR, 1)
    ]
    return f"""
.visible .entry form{index}(.param .u64 out) {{
 .reg .b32 a, b, c, d, s, n, h, x, thread; .reg .b64 at, offset; .reg .pred again, p, q;
 {' '.join(declared + results)}
 mov.u32 thread, %ctaid.x; mov.u32 n, %tid.x; mad.lo.u32 thread, thread, {BLOCK}, n;
 mad.lo.u32 s, thread, 2654435761, {index * 7919 + 1}; mov.u32 n, {ROUNDS}; mov.u32 h, 0;
round:
 {step.format(15, "a")} {step.format(13, "b")} {step.format(14, "c")}
 and.b32 x, n, 3; {' '.join(near)}
 {' '.join(filled)} {{ {body} }} {' '.join(hashed)}
 sub.u32 n, n, 1; setp.ne.u32 again, n, 0; @again bra round;
 ld.param.u64 at, [out]; mul.wide.u32 offset, thread, 4; add.u64 at, at, offset; st.global.u32 [at], h; ret;
}}
"""


def hashes(gpu, some, found):
    """Adds the hashes of some forms. If the driver refuses them together, each is tried alone."""
    module, log = gpu.load(HEADER + "".join(kernel(*form) for form in some))
    if module is None:
        if len(some) == 1:
            print(f"refused: {some[0][1]}: {log.strip()[:200]}")
            return
        for form in some:
            hashes(gpu, [form], found)
        return
    for index, body, *_ in some:
        gpu.launch(module, f"form{index}", (THREADS // BLOCK, BLOCK), gpu.buffers[:1])
        words = gpu.read(gpu.buffers[0], 4 * THREADS)
        found[body] = [zlib.crc32(words[first : first + 128]) for first in range(0, 4 * THREADS, 128)]
    gpu.call("cuModuleUnload", module)


def compare(one, other):
    """Prints the forms with other hashes, and in how many warps."""
    both = [(body, sum(a != b for a, b in zip(one[body], other[body]))) for body in one if body in other]
    for body, count in both:
        if count:
            print(f"{count:4} of {THREADS // 32} warps differ: {body}")
    print(f"{len(both)} forms compared, {sum(count > 0 for _, count in both)} differ")


def main():
    if sys.argv[1] == "--compare":
        compare(*(json.loads(Path(name).read_text()) for name in sys.argv[2:4]))
        return
    gpu, found = Gpu(4 * THREADS), {}
    numbered = [(index, *form) for index, form in enumerate(forms())]
    for first in range(0, len(numbered), 64):
        hashes(gpu, numbered[first : first + 64], found)
    Path(sys.argv[1]).write_text(json.dumps(found))
    print(f"{len(found)} of {len(numbered)} forms ran")


if __name__ == "__main__":
    main()
