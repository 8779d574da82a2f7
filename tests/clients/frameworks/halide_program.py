"""Pipelines of Halide on its CUDA back end, against NumPy."""

import sys

import halide as hl
import numpy as np

TARGET = hl.get_host_target().with_feature(hl.TargetFeature.CUDA)
TARGET = TARGET.with_feature(hl.TargetFeature.CUDACapability80)
x, y, i, j, k, l = (hl.Var(name) for name in "x y i j k l".split())
r = np.random.default_rng(1)


def realized(func, *sizes):
    """The values of a function, computed on the device."""
    buffer = func.realize(list(sizes), TARGET)
    buffer.copy_to_host()
    return np.array(buffer, copy=True)


def close(ours, theirs):
    """Whether values agree in one order of axes or the other: Halide's first axis is the inner one."""
    ours = ours if ours.shape == theirs.shape else ours.T
    return np.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def points():
    """A function of coordinates, in tiles of 16 x 16."""
    func = hl.Func("points")
    func[x, y] = hl.f32(x) * 2.5 + hl.sqrt(hl.f32(y))
    func.gpu_tile(x, y, i, j, k, l, 16, 16)
    columns, rows = np.arange(128)[None, :], np.arange(96)[:, None]
    return close(realized(func, 128, 96), columns * 2.5 + np.sqrt(rows))


def blur():
    """Two stages, the first of which is computed in shared memory for each block."""
    image = r.random((66, 66), dtype=np.float32)
    source = hl.Buffer(image)
    across, down = hl.Func("across"), hl.Func("down")
    across[x, y] = source[x, y] + source[x + 1, y] + source[x + 2, y]
    down[x, y] = across[x, y] + across[x, y + 1] + across[x, y + 2]
    down.gpu_tile(x, y, i, j, k, l, 16, 16)
    across.compute_at(down, i).gpu_threads(x, y)
    rows = image[:, :-2] + image[:, 1:-1] + image[:, 2:]
    return close(realized(down, 64, 64), rows[:-2] + rows[1:-1] + rows[2:])


def histogram():
    """Atomics on counters."""
    values = r.integers(0, 32, 4096, dtype=np.int32)
    source, counts = hl.Buffer(values), hl.Func("counts")
    domain = hl.RDom([(0, 4096)])
    counts[x] = 0
    counts[hl.clamp(source[domain.x], 0, 31)] += 1
    counts.gpu_tile(x, i, k, 32)
    outer, inner = hl.RVar("outer"), hl.RVar("inner")
    counts.update().atomic().split(domain.x, outer, inner, 128).gpu_blocks(outer).gpu_threads(inner)
    return (realized(counts, 32) == np.bincount(values, minlength=32)).all()


def main():
    """Runs each pipeline, and compares."""
    results = {pipeline.__name__: pipeline() for pipeline in (points, blur, histogram)}
    for name, is_right in results.items():
        print("passed" if is_right else "failed", name, sep="\t")
    sys.exit(not all(results.values()))


main()
