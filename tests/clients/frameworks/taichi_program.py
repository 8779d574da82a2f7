"""Kernels of Taichi on its CUDA back end, against NumPy."""

import sys

import numpy as np
import taichi as ti

ti.init(arch=ti.cuda, device_memory_GB=0.3, offline_cache=False, enable_fallback=False)
N = 1000
field, counts = ti.field(ti.f32, N), ti.field(ti.i32, 10)
matrix = ti.Matrix.field(2, 2, ti.f32, N)
sparse = ti.field(ti.i32)
ti.root.pointer(ti.i, 64).dense(ti.i, 16).place(sparse)


@ti.kernel
def fill():
    for i in field:
        field[i] = ti.sin(i * 0.1) + ti.cast(i % 3, ti.f32)
        counts[i % 10] += 1
        matrix[i] = ti.Matrix([[1.0, 0.5], [i, 2.0]]) @ ti.Matrix([[2.0, 0.0], [1.0, 1.0]])


@ti.kernel
def total() -> ti.f32:
    result = 0.0
    for i in field:
        result += field[i]
    return result


@ti.kernel
def activate(step: ti.i32):
    for i in range(1024 // step):
        sparse[i * step] = i


@ti.kernel
def active() -> ti.i32:
    result = 0
    for i in sparse:
        result += 1
    return result


def main():
    """Runs each kernel, and compares."""
    fill()
    i = np.arange(N)
    activate(100)
    products = np.array([[[1, 0.5], [n, 2]] @ np.array([[2, 0], [1, 1]]) for n in i])
    results = {
        "fields": np.abs(field.to_numpy() - (np.sin(i * 0.1) + i % 3)).max() < 1e-4,
        "reductions": abs(total() - (np.sin(i * 0.1) + i % 3).sum()) < 0.01,
        "atomics": (counts.to_numpy() == N // 10).all(),
        "matrices": np.abs(matrix.to_numpy() - products).max() < 1e-3,
        "sparse fields": active() == 10 * 16,
    }
    for name, is_right in results.items():
        print("passed" if is_right else "failed", name, sep="\t")
    sys.exit(not all(results.values()))


main()
