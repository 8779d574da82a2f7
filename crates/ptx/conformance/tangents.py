"""Hashes what a GPU gives for `tanh.approx` of many operands: `tests/conformance/tangents.rs` has them.

    python3 tangents.py

It needs libcuda and nothing else.
"""

import ctypes
import struct

from record import HEADER, Gpu

COUNT = 1 << 16

# The operands from the number `n` of a thread on, and the instruction: by what is asked.
FORMS = {
    # Each 64th `.f32` from 2^-14 to 2^4.
    "binades": (36, 4, "mul.lo.u32 x, n, 64; add.u32 x, x, 0x38800000; tanh.approx.f32 x, x;"),
    # Runs of 4096 `.f32`, which begin at places of a hash.
    "runs": (16, 4, "shr.u32 t, n, 12; mul.lo.u32 t, t, 2654435761; shr.u32 t, t, 4; rem.u32 t, t, 0x09000000; and.b32 t, t, 0xfffff000; and.b32 x, n, 4095; add.u32 x, x, t; add.u32 x, x, 0x38800000; tanh.approx.f32 x, x;"),
    "f16": (1, 2, "cvt.u16.u32 h, n; tanh.approx.f16 h, h;"),
    "bf16": (1, 2, "cvt.u16.u32 h, n; tanh.approx.bf16 h, h;"),
}


def results(gpu, first, size, body):
    """The results of so many operands, from a number on."""
    text = f"""{HEADER}
.visible .entry form(.param .u64 out, .param .u32 first) {{
 .reg .b32 n, t, x, i; .reg .b16 h; .reg .b64 at, offset;
 mov.u32 i, %ctaid.x; mov.u32 t, %tid.x; mad.lo.u32 i, i, 256, t; ld.param.u32 n, [first]; add.u32 n, n, i;
 ld.param.u64 at, [out]; mul.wide.u32 offset, i, {size}; add.u64 at, at, offset;
 {body} st.global.b{8 * size} [at], {"x" if size == 4 else "h"}; ret; }}
"""
    module, log = gpu.load(text)
    if module is None:
        raise RuntimeError(log)
    gpu.launch(module, "form", (COUNT // 256, 256), [gpu.buffers[0], ctypes.c_uint32(first)])
    data = gpu.read(gpu.buffers[0], COUNT * size)
    gpu.call("cuModuleUnload", module)
    return struct.unpack(f"<{COUNT}{'I' if size == 4 else 'H'}", data)


def main():
    gpu = Gpu(4 * COUNT)
    for name, (parts, size, body) in FORMS.items():
        value = 0xCBF29CE484222325
        for part in range(parts):
            for result in results(gpu, part * COUNT, size, body):
                value = (value ^ result) * 0x100000001B3 & (1 << 64) - 1
        print(f"{name}: {value:#018x}")


if __name__ == "__main__":
    main()
