"""A driver that counts bytes, under numba-cuda's own memory manager.

numba-cuda asks CUDA's driver by the attributes of one object, `driver`. Its functions are replaced
here; numba-cuda's own classes run as published. The device gives out every byte that is free and no
more. Each call is noted, with what it was about: `#N` is the Nth piece of memory that was given,
`rN` a region of host memory.
"""

from cuda.bindings import runtime

# numba-cuda asks for the version of the runtime library when it is imported. There is none here.
runtime.getLocalRuntimeVersion = lambda: (runtime.cudaError_t.cudaSuccess, 13000)

from numba.cuda.cudadrv import driver as numba_driver  # noqa: E402
from numba.cuda.cudadrv.driver import CudaAPIError, binding  # noqa: E402

OUT_OF_MEMORY = 2
INVALID_VALUE = 1
ALREADY_REGISTERED = 712

# Addresses of host memory that is no driver's, a region each.
REGIONS = [(1 << 40) + number * (1 << 16) for number in range(3)]
REGION_BYTES = 8192


class Driver:
    """The memory of one GPU, and the calls that were made."""

    def reset(self, total):
        self.total = total
        self.free = total
        self.calls = []
        self.failing = {}
        self.given = {}
        self.registered = set()
        self.numbers = 0

    def note(self, call, *about):
        """Notes a call, and raises if calls of this kind are to fail."""
        text = " ".join(str(one) for one in (call, *about))
        code = self.failing.get(call)
        if code is None:
            self.calls.append(text)
        else:
            self.fail(text, code)

    def fail(self, text, code):
        self.calls.append(f"{text} !{code}")
        raise CudaAPIError(binding.CUresult(code), text)

    def give(self, size, is_device=False):
        address = (1 << 30) + self.numbers * (1 << 24)
        self.given[address] = (self.numbers, size, is_device)
        self.numbers += 1
        return address

    def name(self, address):
        """Names an address by the piece of memory that it lies in, and how far in. The driver
        refuses others."""
        if address in REGIONS:
            return f"r{REGIONS.index(address)}"
        for start, (number, size, _) in self.given.items():
            if start <= address < start + max(size, 1):
                return f"#{number}+{address - start}" if address > start else f"#{number}"
        self.fail("nowhere", INVALID_VALUE)

    # ---- the functions of the driver ----

    def cuMemAlloc(self, size):
        if size > self.free and "alloc" not in self.failing:
            self.fail(f"alloc {size}", OUT_OF_MEMORY)
        self.note("alloc", size)
        self.free -= size
        return binding.CUdeviceptr(self.give(size, is_device=True))

    def cuMemAllocManaged(self, size, flags):
        self.note("alloc_managed", size, int(flags))
        return binding.CUdeviceptr(self.give(size))

    def cuMemFree(self, pointer):
        self.note("free", self.name(int(pointer)))
        _, size, is_device = self.given.pop(int(pointer))
        self.free += size if is_device else 0

    def cuMemHostAlloc(self, size, flags):
        self.note("alloc_pinned", size, int(flags))
        return self.give(size)

    def cuMemFreeHost(self, pointer):
        self.note("free_pinned", self.name(pointer))
        del self.given[pointer]

    def cuMemHostGetDevicePointer(self, pointer, flags):
        return binding.CUdeviceptr(pointer)

    def cuMemHostRegister(self, pointer, size, flags):
        if pointer in self.registered and "register" not in self.failing:
            self.fail(f"register {self.name(pointer)} {int(flags)}", ALREADY_REGISTERED)
        self.note("register", self.name(pointer), int(flags))
        self.registered.add(pointer)

    def cuMemHostUnregister(self, pointer):
        self.note("unregister", self.name(pointer))
        self.registered.discard(pointer)

    def cuMemGetInfo(self):
        self.note("info")
        return self.free, self.total

    def cuMemGetAddressRange(self, pointer):
        for start, (_, size, _) in self.given.items():
            if start <= pointer < start + max(size, 1):
                return binding.CUdeviceptr(start), size
        if pointer in REGIONS:
            return binding.CUdeviceptr(pointer), REGION_BYTES
        raise CudaAPIError(binding.CUresult(INVALID_VALUE), "not an address of live memory")

    def cuIpcGetMemHandle(self, pointer):
        _, _, is_device = self.given.get(pointer, (None, None, False))
        if not is_device:
            self.fail(f"ipc {self.name(pointer)}", INVALID_VALUE)
        self.note("ipc", self.name(pointer))
        return binding.CUipcMemHandle()

    def cuMemsetD8(self, pointer, byte, count):
        self.note("memset", self.name(int(pointer)), count, byte)

    def cuCtxPushCurrent(self, handle):
        self.contexts = getattr(self, "contexts", []) + [handle]

    def cuCtxPopCurrent(self):
        return self.contexts.pop()

    def cuCtxGetCurrent(self):
        return self.contexts[-1] if self.contexts else 0

    def cuCtxGetDevice(self):
        return 0

    def cuInit(self, flags):
        pass


class Device:
    """What a context knows of its device."""

    id = 0
    PCI_DOMAIN_ID = 0
    PCI_BUS_ID = 1
    PCI_DEVICE_ID = 0
    get_device_identity = numba_driver.Device.get_device_identity

    def __init__(self, can_map):
        self.CAN_MAP_HOST_MEMORY = int(can_map)

    def __str__(self):
        return "the device"


DRIVER = Driver()


def install():
    """Puts the functions above in the place of the driver's."""
    driver = numba_driver.driver
    driver.initialization_error = None
    driver.is_initialized = False
    for name in dir(Driver):
        if name.startswith("cu"):
            setattr(driver, name, getattr(DRIVER, name))
    driver.ensure_initialized()
