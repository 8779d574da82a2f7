"""Kernels of Triton on managed memory, against NumPy: unmodified Triton compiles and launches them."""

import ctypes
import sys

import numpy as np
import triton
import triton.language as tl

driver = ctypes.CDLL("libcuda.so.1")
rng = np.random.default_rng(7)


def check(code):
    """Ends the program if a call of the driver failed."""
    assert code == 0, f"CUresult {code}"


class Array:
    """An array in managed memory, as Triton takes one: it has a type and an address."""

    def __init__(self, values):
        place = ctypes.c_uint64()
        check(driver.cuMemAllocManaged(ctypes.byref(place), ctypes.c_size_t(values.nbytes), 1))
        self.address, self.dtype = place.value, values.dtype
        memory = (ctypes.c_char * values.nbytes).from_address(self.address)
        self.values = np.frombuffer(memory, values.dtype).reshape(values.shape)
        self.values[...] = values

    def data_ptr(self):
        """The address."""
        return self.address


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + i, e / tl.sum(e, 0), mask=i < n)


@triton.jit
def matmul(a, b, c, K, N, M_: tl.constexpr, N_: tl.constexpr, K_: tl.constexpr):
    m = tl.program_id(0) * M_ + tl.arange(0, M_)
    n = tl.program_id(1) * N_ + tl.arange(0, N_)
    k = tl.arange(0, K_)
    total = tl.zeros((M_, N_), tl.float32)
    for first in range(0, K, K_):
        x = tl.load(a + m[:, None] * K + first + k[None, :])
        y = tl.load(b + (first + k)[:, None] * N + n[None, :])
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0) % 64, 1, mask=i < n)


@triton.jit
def sort(x, out, sums, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, tl.sort(v))
    tl.store(sums + i, tl.cumsum(v, 0))


@triton.jit
def locked(x, total, lock, BLOCK: tl.constexpr):
    v = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + v)
    tl.atomic_xchg(lock, 0)


def floats(*shape):
    """Random numbers."""
    return rng.standard_normal(shape).astype(np.float32)


def main():
    """Launches each kernel, and compares."""
    check(driver.cuInit(0))
    context = ctypes.c_void_p()
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(driver.cuCtxSetCurrent(context))
    results = []

    def compare(name, found, expected, within=0):
        check(driver.cuCtxSynchronize())
        error = np.abs(found.values.astype(np.float64) - expected).max()
        results.append(error <= within)
        print("passed" if error <= within else f"failed by {error}", name, sep="\t")

    x, y, out = Array(floats(3000)), Array(floats(3000)), Array(np.zeros(3000, np.float32))
    add[(3,)](x, y, out, 3000, BLOCK=1024)
    compare("add", out, x.values + y.values)
    rows, out = Array(floats(8, 1000)), Array(np.zeros((8, 1000), np.float32))
    softmax[(8,)](rows, out, 1000, BLOCK=1024)
    e = np.exp(rows.values.astype(np.float64))
    compare("softmax", out, e / e.sum(1, keepdims=True), 1e-7)
    for kind, within in ((np.float16, 1e-3), (np.float32, 0.1)):
        a, b = Array(floats(128, 96).astype(kind)), Array(floats(96, 64).astype(kind))
        out = Array(np.zeros((128, 64), np.float32))
        matmul[(2, 1)](a, b, out, 96, 64, M_=64, N_=64, K_=32)
        product = a.values.astype(np.float64) @ b.values.astype(np.float64)
        compare(f"matmul of {kind.__name__}", out, product, within)
    words = Array(rng.integers(0, 1000, 3000, dtype=np.int32))
    out = Array(np.zeros(64, np.int32))
    histogram[(6,)](words, out, 3000, BLOCK=512)
    compare("histogram", out, np.bincount(words.values % 64, minlength=64))
    words, out = Array(rng.integers(0, 1000, 512, dtype=np.int32)), Array(np.zeros(512, np.int32))
    sums = Array(np.zeros(512, np.int32))
    sort[(1,)](words, out, sums, BLOCK=512)
    compare("sort", out, np.sort(words.values))
    compare("sums", sums, np.cumsum(words.values))
    x = Array(rng.integers(0, 9, 1024).astype(np.float32))
    out, lock = Array(np.zeros(1, np.float32)), Array(np.zeros(1, np.int32))
    locked[(4,)](x, out, lock, BLOCK=256)
    compare("lock", out, x.values.sum())
    sys.exit(not all(results))


main()
