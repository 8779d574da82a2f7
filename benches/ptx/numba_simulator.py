"""Times the kernels of kernels.ptx in Numba's CUDA simulator, which runs each thread as one of Python.

Prints a line of JSON for each kernel: seconds for the shape that was run, and the part of the other
executors' threads that it has.
"""
import json
import os
import time

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
import numpy as np
from numba import cuda, float32


@cuda.jit
def saxpy(x, y):
    i = cuda.grid(1)
    y[i] = x[i] * float32(2.5) + y[i]


@cuda.jit
def rounds(x, out, n):
    i = cuda.grid(1)
    value = x[i]
    for _ in range(n):
        value = value * value - float32(0.25)
    out[i] = value


@cuda.jit
def gemm(a, b, c, n):
    column, row = cuda.grid(2)
    total = float32(0)
    for k in range(n):
        total += a[row * n + k] * b[k * n + column]
    c[row * n + column] = total


@cuda.jit
def sums(x, out):
    part = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    part[t] = x[cuda.grid(1)]
    half = 128
    while half > 0:
        cuda.syncthreads()
        if t < half:
            part[t] += part[t + half]
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = part[0]


def buffers(*sizes):
    return [((np.arange(n) * 37 + k * 11) % 255 / 128 - 1).astype(np.float32) for k, n in enumerate(sizes)]


# A part of the blocks: the whole would take hours.
for name, kernel, grid, block, arguments, part in (
    ("saxpy", saxpy, 4, 256, buffers(1 << 16, 1 << 16), 4 / 256),
    ("rounds", rounds, 1, 256, buffers(1 << 12, 1 << 12) + [256], 1 / 16),
    ("gemm", gemm, (1, 1), (16, 16), buffers(96 * 96, 96 * 96, 96 * 96) + [96], 1 / 36),
    ("sums", sums, 4, 256, buffers(1 << 16, 256), 4 / 256),
):
    kernel[grid, block](*arguments)
    best = 1e9
    for _ in range(2):
        before = time.perf_counter()
        kernel[grid, block](*arguments)
        best = min(best, time.perf_counter() - before)
    print(json.dumps({"kernel": name, "numba": best / part, "part": part}), flush=True)
