"""A device that counts bytes, under cubie's own memory manager.

cubie asks numba's CUDA driver for streams, events and memory. The modules that it would ask are
replaced here before cubie is imported; cubie's own modules run as published. The device gives out
every byte that is free and no more, so that both managers are asked about the same figures.
"""

import importlib.util
import sys
import weakref
from enum import IntEnum
from itertools import count
from mmap import mmap
from types import ModuleType, SimpleNamespace

import numpy


class NoDevice(Exception):
    """The driver's error where there is no GPU."""


class Device:
    """The memory of one GPU, and whether there is one."""

    def __init__(self):
        self.addresses = count(1 << 20, 1 << 20)
        self.reset(total=1, free=1)

    def reset(self, total, free):
        self.total = total
        self.free = free
        self.present = True

    def memory_info(self):
        if not self.present:
            raise NoDevice("no CUDA device")
        return self.free, self.total


DEVICE = Device()


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2


class PoolAttribute(IntEnum):
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 0
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 1


class Driver:
    """The functions of the driver that cubie's memory modules call."""

    CUresult = Result
    CUmemPool_attribute = PoolAttribute
    CUdevice = staticmethod(int)

    def __init__(self):
        self.sizes = {}

    def cuMemAllocAsync(self, nbytes, _stream):
        if nbytes > DEVICE.free:
            return Result.CUDA_ERROR_OUT_OF_MEMORY, 0
        DEVICE.free -= nbytes
        address = next(DEVICE.addresses)
        self.sizes[address] = nbytes
        return Result.CUDA_SUCCESS, address

    def cuMemFreeAsync(self, address, _stream):
        DEVICE.free += self.sizes.pop(address)
        return (Result.CUDA_SUCCESS,)

    def cuDeviceGetDefaultMemPool(self, device):
        return Result.CUDA_SUCCESS, device

    def cuMemPoolGetAttribute(self, _pool, _attribute):
        return Result.CUDA_SUCCESS, 0

    def cuStreamQuery(self, _stream):
        return (Result.CUDA_SUCCESS,)


class Stream:
    """A stream whose work is always done."""

    handle = 0

    def synchronize(self):
        pass


class Event:
    def record(self, stream=0):
        pass

    def query(self):
        return True


class MemoryPointer:
    def __init__(self, _context, pointer, size, finalizer=None):
        self.device_pointer = pointer
        self.size = size
        weakref.finalize(self, finalizer)


class DeviceArray:
    """An array of the device: its layout, and the memory that it keeps."""

    def __init__(self, shape, strides, dtype, stream=0, gpu_data=None):
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.dtype = numpy.dtype(dtype)
        self.stream = stream
        self.gpu_data = gpu_data
        self.nbytes = int(numpy.prod(self.shape, dtype=object)) * self.dtype.itemsize


class Context:
    memory_manager = SimpleNamespace(deallocations=SimpleNamespace(clear=lambda: None))

    def get_memory_info(self):
        return DEVICE.memory_info()

    def memhostalloc(self, nbytes):
        return mmap(-1, nbytes)


def module(name, **contents):
    made = ModuleType(name)
    made.__dict__.update(contents)
    sys.modules[name] = made
    return made


def ignored(*_arguments, **_options):
    """In place of a decorator that compiles: the function stays as it is."""
    return lambda function: function


def install():
    """Puts the device under cubie's memory modules, and leaves the rest of cubie out."""
    cuda = SimpleNamespace(
        current_context=Context,
        get_current_device=lambda: SimpleNamespace(id=0),
        stream=Stream,
        event=Event,
        jit=ignored,
        MemoryPointer=MemoryPointer,
        devicearray=SimpleNamespace(DeviceNDArray=DeviceArray),
    )
    numbers = SimpleNamespace(Integer=int, Boolean=bool)
    module("numba_cuda_mlir")
    module("numba_cuda_mlir.numba_cuda", types=numbers)
    module("numba_cuda_mlir.numba_cuda.np")
    module("numba_cuda_mlir.numba_cuda.np.numpy_support", from_dtype=lambda dtype: dtype)
    module(
        "cubie._cudasim_extensions",
        cuda=cuda,
        cuda_driver=Driver(),
        CudaSupportError=NoDevice,
        DeviceNDArray=DeviceArray,
        DeviceNDArrayBase=DeviceArray,
        Stream=Stream,
        fmax=max,
        fmin=min,
    )
    # cubie's own start imports its solvers, which need a compiler.
    package = ModuleType("cubie")
    package.__path__ = list(importlib.util.find_spec("cubie").submodule_search_locations)
    sys.modules["cubie"] = package
