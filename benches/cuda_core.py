"""What cuda.core's managed-memory operations cost per call, as benches/api.rs measures ours.

Needs a GPU, cuda-core and cuda-bindings. Calls that only queue work are made in turns of 32, and
the stream is waited for between turns, which is not measured. Prints the median over turns, in
nanoseconds per call.
"""

import statistics
import time

import cuda.core
from cuda.bindings import driver
from cuda.core import Device, Host, ManagedBuffer, ManagedMemoryResource, ManagedMemoryResourceOptions
from cuda.core.utils import prefetch_batch

PAGE = 4096
QUEUED = 32
TURNS = 300


def check(result):
    code, *values = result
    if int(code) != 0:
        raise RuntimeError(f"the driver returned {code}")
    return values[0] if values else None


def measure(name, call, settle=None):
    for _ in range(QUEUED):
        call()
    if settle:
        settle()
    turns = []
    for _ in range(TURNS):
        start = time.perf_counter_ns()
        for _ in range(QUEUED):
            call()
        turns.append((time.perf_counter_ns() - start) / QUEUED)
        if settle:
            settle()
    print(f"{name:<48}{statistics.median(turns):>10.0f} ns")


def main():
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    print("cuda.core", cuda.core.__version__, "driver", check(driver.cuDriverGetVersion()))
    attach = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value

    def wrapped():
        return ManagedBuffer.from_handle(int(check(driver.cuMemAllocManaged(PAGE, attach))), PAGE)

    buffer = wrapped()
    host = Host()
    settle = stream.sync

    def set_read_mostly():
        buffer.read_mostly = True

    def assign_accessed_by():
        buffer.accessed_by = {device}

    measure("read_mostly get", lambda: buffer.read_mostly)
    measure("read_mostly set", set_read_mostly)
    buffer.read_mostly = False
    measure("accessed_by, as a set", lambda: set(buffer.accessed_by))
    measure("accessed_by, assign what holds", assign_accessed_by)
    measure("prefetch", lambda: buffer.prefetch(host, stream=stream), settle)
    measure("discard_prefetch", lambda: buffer.discard_prefetch(host, stream=stream), settle)
    for count in (16, 256):
        buffers = [wrapped() for _ in range(count)]
        measure(f"batch of {count} prefetches", lambda: prefetch_batch(stream, buffers, host), settle)

    def direct():
        check(driver.cuMemFree(check(driver.cuMemAllocManaged(PAGE, attach))))

    measure("allocate and free 4 KiB, bindings only", direct)
    resource = ManagedMemoryResource(ManagedMemoryResourceOptions())

    def pooled():
        resource.allocate(PAGE, stream=stream).close(stream)

    measure("allocate and free 4 KiB, pool", pooled, settle)


main()
