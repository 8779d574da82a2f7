"""Sends five calls of cuda.bindings.runtime to the driver.

cuda.bindings.runtime contains NVIDIA's cudart as a static library. That library ends in a check of
the driver's authenticity, so it does not start on a simulated driver. cuda.core uses it for three
calls (cudaDeviceSynchronize, cudaDeviceGetPCIBusId, cudaSetDevice), and its tests for two more
(cudaGetDevice, cudaDeviceGetAttribute). This pytest plug-in (`-p pagewise_redirect`) answers them by
calls of the driver.
"""

import os

import cuda.bindings
from cuda.bindings import driver, runtime
import cuda.core._memory
import cuda.core._memory._ipc


def _code(result):
    """A CUresult as a cudaError_t: the two have the same numbers where these calls fail."""
    try:
        return runtime.cudaError_t(int(result))
    except ValueError:
        return runtime.cudaError_t.cudaErrorUnknown


def _current_device():
    """Makes the primary context of device 0 current if no context is, as cudart does."""
    result, context = driver.cuCtxGetCurrent()
    if int(result) == 0 and int(context) != 0:
        return
    set_device(0)


def set_device(device):
    result, context = driver.cuDevicePrimaryCtxRetain(device)
    if int(result) == 0:
        (result,) = driver.cuCtxSetCurrent(context)
    return (_code(result),)


def synchronize():
    _current_device()
    (result,) = driver.cuCtxSynchronize()
    return (_code(result),)


def pci_bus_id(length, device):
    result, name = driver.cuDeviceGetPCIBusId(length, device)
    return _code(result), name


def get_device():
    _current_device()
    result, device = driver.cuCtxGetDevice()
    return _code(result), int(device)


def attribute(which, device):
    # The attributes have the same numbers in both interfaces.
    result, value = driver.cuDeviceGetAttribute(driver.CUdevice_attribute(int(which)), device)
    return _code(result), value


# Tests import cuda.bindings._test_helpers, which the wheel lacks and their checkout has.
if "CUDA_BINDINGS_TEST_HELPERS" in os.environ:
    cuda.bindings.__path__.append(os.environ["CUDA_BINDINGS_TEST_HELPERS"])

runtime.cudaGetDevice = get_device
runtime.cudaDeviceGetAttribute = attribute
runtime.cudaSetDevice = set_device
runtime.cudaDeviceSynchronize = synchronize
runtime.cudaDeviceGetPCIBusId = pci_bus_id

# cuda-core 1.2 moved a name that tests of the releases before import.
if not hasattr(cuda.core._memory, "IPCBufferDescriptor"):
    cuda.core._memory.IPCBufferDescriptor = cuda.core._memory._ipc.IPCBufferDescriptor
