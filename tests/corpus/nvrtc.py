#!/usr/bin/env python3
"""Builds kernels with NVRTC: nvrtc.py CUDA OUT NAME...

CUDA is the folder `nvidia/cu13` of the Python packages. OUT/NAME.ptx is the PTX of kernels/NAME.cu
for compute capability 9.0.
"""
import ctypes
import glob
import pathlib
import sys


def main():
    cuda, out, names = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    kernels = pathlib.Path(__file__).parent / "kernels"
    builtins = glob.glob(str(cuda / "lib/libnvrtc-builtins.so.*"))
    ctypes.CDLL(builtins[0], ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(glob.glob(str(cuda / "lib/libnvrtc.so.*"))[0])
    options = [b"--gpu-architecture=compute_90", b"-std=c++17", b"-I" + str(cuda / "include").encode(),
               b"-I" + str(cuda / "include/cccl").encode(), b"-default-device", b"-device-int128"]
    for name in names:
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        source = (kernels / f"{name}.cu").read_bytes()
        assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, f"{name}.cu".encode(), 0, None, None) == 0
        status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if status:
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            sys.exit(f"{name}: {log.value.decode()}")
        nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetPTX(program, text)
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.ptx").write_bytes(text.value)


main()
