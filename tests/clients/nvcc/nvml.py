"""Asks libnvidia-ml.so.1 through NVIDIA's Python package, nvidia-ml-py."""

import pynvml


def main():
    """Checks that answers fit each other."""
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 1
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    name, uuid = pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetUUID(device)
    place = pynvml.nvmlDeviceGetPciInfo(device)
    for found in (
        pynvml.nvmlDeviceGetHandleByUUID(uuid),
        pynvml.nvmlDeviceGetHandleByPciBusId(place.busId),
    ):
        assert pynvml.nvmlDeviceGetIndex(found) == 0
    memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    newer = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
    assert memory.total == newer.total == memory.free + memory.used
    assert pynvml.nvmlDeviceGetCudaComputeCapability(device) == (9, 0)
    driver, cuda = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion()
    try:
        pynvml.nvmlDeviceGetHandleByIndex(1)
        raise AssertionError("there is no second device")
    except pynvml.NVMLError_InvalidArgument as error:
        assert str(error) == "Invalid Argument", error
    try:
        pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU)
        raise AssertionError("the library has no temperatures")
    except pynvml.NVMLError_FunctionNotFound:
        pass
    pynvml.nvmlShutdown()
    try:
        pynvml.nvmlDeviceGetCount()
        raise AssertionError("the library is not started")
    except pynvml.NVMLError_Uninitialized:
        pass
    print(f"nvml: {name}, driver {driver}, CUDA {cuda}")


main()
