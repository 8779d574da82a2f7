"""Operations of tinygrad on its CUDA back end, against NumPy."""

import sys

import numpy as np
from tinygrad import Device, Tensor

rng = np.random.default_rng(7)


def floats(*shape):
    """Random numbers."""
    return rng.standard_normal(shape).astype(np.float32)


def main():
    """Carries out each operation, and compares."""
    assert Device.DEFAULT == "CUDA", Device.DEFAULT
    a, b, image, weights = floats(65, 96), floats(96, 33), floats(2, 3, 17, 19), floats(4, 3, 3, 3)
    e = np.exp(a - a.max(1, keepdims=True))
    patches = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    results = {
        "matmul": (Tensor(a) @ Tensor(b), a @ b),
        "softmax": (Tensor(a).softmax(1), e / e.sum(1, keepdims=True)),
        "conv2d": (Tensor(image).conv2d(Tensor(weights)), np.einsum("nchwij,ocij->nohw", patches, weights)),
        "sort": (Tensor(a).sort(1)[0], np.sort(a, 1)),
        "cumsum": (Tensor(a).cumsum(1), np.cumsum(a, 1)),
        "half": ((Tensor(a).half() @ Tensor(b).half()).float(), a @ b),
        "argmax": (Tensor(a).argmax(1).float(), a.argmax(1)),
        "functions": (Tensor(a).sin() + Tensor(a).exp() + Tensor(a).abs().log(), np.sin(a) + np.exp(a) + np.log(abs(a))),
    }
    failed = 0
    for name, (found, expected) in results.items():
        error = np.abs(found.numpy() - expected).max()
        is_near = error <= (0.1 if name == "half" else 1e-3)
        failed += not is_near
        print("passed" if is_near else f"failed by {error}", name, sep="\t")
    sys.exit(failed)


main()
