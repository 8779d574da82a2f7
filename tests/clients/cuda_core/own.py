"""A short program over cuda.core, for where its own tests cannot be had: buffers, managed memory,
streams and events.

It prints what results.py prints: a line for each of its checks.
"""

import sys
import traceback

import numpy

from cuda.core import (
    Device,
    EventOptions,
    Host,
    LegacyPinnedMemoryResource,
    ManagedBuffer,
    ManagedMemoryResource,
    StreamOptions,
)
from cuda.core.utils import prefetch_batch

BYTES = 1 << 20


def view(buffer):
    """The bytes of a buffer that the host can use."""
    return numpy.from_dlpack(buffer).view(numpy.uint8)


def a_device_has_the_attributes_of_its_profile(device):
    assert device.compute_capability == (9, 0), device.compute_capability
    assert device.properties.concurrent_managed_access
    assert device.properties.warp_size == 32


def device_memory_keeps_what_is_copied_to_it(device):
    stream = device.create_stream()
    pinned = LegacyPinnedMemoryResource()
    there, back = pinned.allocate(BYTES), pinned.allocate(BYTES)
    memory = device.allocate(BYTES, stream=stream)
    view(there)[:] = numpy.arange(BYTES, dtype=numpy.uint64).astype(numpy.uint8)
    memory.copy_from(there, stream=stream)
    memory.copy_to(back, stream=stream)
    stream.sync()
    assert (view(there) == view(back)).all()
    memory.close(stream)


def fills_of_1_2_and_4_bytes_repeat_their_element(device):
    stream = device.create_stream()
    buffer = LegacyPinnedMemoryResource().allocate(BYTES)
    for element in (b"\x07", b"\x01\x02", b"\x01\x02\x03\x04"):
        buffer.fill(element, stream=stream)
        stream.sync()
        assert bytes(view(buffer)[-4:]) == (element * 4)[:4]
    try:
        buffer.fill(256, stream=stream)
        raise AssertionError("256 is no byte")
    except OverflowError:
        pass


def managed_memory_takes_advice_and_is_prefetched(device):
    stream = device.create_stream()
    memory = ManagedMemoryResource()
    buffers = [memory.allocate(BYTES, stream=stream) for _ in range(3)]
    stream.sync()
    for value, buffer in enumerate(buffers):
        view(buffer)[:] = value
    buffers[0].prefetch(device, stream=stream)
    prefetch_batch(stream, buffers[1:], [device, Host()])
    stream.sync()
    assert [int(view(buffer)[-1]) for buffer in buffers] == [0, 1, 2]
    buffers[0].discard_prefetch(device, stream=stream)
    stream.sync()
    for buffer in buffers:
        buffer.close(stream)


def memory_that_is_not_managed_is_refused_by_managed_operations(device):
    stream = device.create_stream()
    memory = device.allocate(BYTES, stream=stream)
    try:
        ManagedBuffer.from_handle(memory.handle, BYTES, owner=memory).prefetch(device, stream=stream)
        raise AssertionError("the memory is not managed")
    except ValueError:
        pass


def a_stream_has_its_priority_and_waits_for_others(device):
    first, second = device.create_stream(), device.create_stream(options=StreamOptions(priority=-1))
    assert second.priority == -1 and second.is_nonblocking
    second.wait(first)
    second.sync()
    assert first.device.device_id == second.device.device_id == 0


def the_time_between_two_events_is_measured(device):
    stream, timed = device.create_stream(), EventOptions(timing_enabled=True)
    start = stream.record(options=timed)
    memory = device.allocate(BYTES, stream=stream)
    memory.fill(1, stream=stream)
    end = stream.record(options=timed)
    end.sync()
    assert end.is_done and end - start > 0


def a_graph_of_memory_work_runs_twice(device):
    stream = device.create_stream()
    buffer = LegacyPinnedMemoryResource().allocate(BYTES)
    builder = stream.create_graph_builder().begin_building()
    buffer.fill(9, stream=builder)
    graph = builder.end_building().complete()
    for _ in range(2):
        view(buffer)[:] = 0
        graph.launch(stream)
        stream.sync()
        assert (view(buffer) == 9).all()


CHECKS = [
    a_device_has_the_attributes_of_its_profile,
    device_memory_keeps_what_is_copied_to_it,
    fills_of_1_2_and_4_bytes_repeat_their_element,
    managed_memory_takes_advice_and_is_prefetched,
    memory_that_is_not_managed_is_refused_by_managed_operations,
    a_stream_has_its_priority_and_waits_for_others,
    the_time_between_two_events_is_measured,
    a_graph_of_memory_work_runs_twice,
]


def main():
    """Makes all checks, also after one that fails."""
    device = Device(0)
    device.set_current()
    for check in CHECKS:
        try:
            check(device)
            outcome = "passed"
        except Exception:
            traceback.print_exc(file=sys.stderr)
            outcome = "failed"
        print(f"{outcome}\town.{check.__name__}")


main()
