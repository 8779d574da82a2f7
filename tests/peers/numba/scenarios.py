"""Random scenarios carried out with numba-cuda's own memory manager, one JSON line for each.

A line holds the device's memory and the steps. Each step has what was done, and what was seen after
it: the refusal, the driver's calls in their order, the deallocations that wait, and the failures
that a destructor could not report.

    scenarios.py SEED COUNT
"""

import gc
import json
import random
import sys

import device

device.install()

from numba.cuda.core import config  # noqa: E402
from numba.cuda.cudadrv.driver import (  # noqa: E402
    AutoFreePointer,
    Context,
    CudaAPIError,
    CudaDriverError,
    MemoryPointer,
    binding,
)

DRIVER = device.DRIVER

# The start of numba-cuda's messages, and the names that the other side gives to the same refusals.
REFUSALS = {
    "Freeing dead memory": "freed",
    "weakly-referenced object no longer exists": "freed",
    "size cannot be negative": "ends before it starts",
    "the device cannot map host memory": "cannot map",
    "Not a CUDA memory object": "no handle",
}


def named(error):
    if isinstance(error, CudaAPIError):
        return f"cuda {int(error.code)}"
    if isinstance(error, KeyError):
        return "forgotten"
    for start, name in REFUSALS.items():
        if str(error).startswith(start):
            return name
    raise error


class Scenario:
    def __init__(self, random_numbers):
        self.random = random_numbers
        self.total = self.random.choice([1000, 10_000, 100_000])
        DRIVER.reset(self.total)
        self.can_map = self.random.random() < 0.9
        self.context = Context(device.Device(self.can_map), 7)
        self.limits(10, 0.2)
        # Handles by number: memory, owners, views, handles for other processes.
        self.handles = {}
        self.kinds = {}
        self.numbers = 0
        self.deferrals = []
        self.lost = 0
        self.steps = []

    def limits(self, count, ratio):
        config.CUDA_DEALLOCS_COUNT = count
        config.CUDA_DEALLOCS_RATIO = ratio

    def keep(self, handle, kind):
        number = self.numbers
        self.numbers += 1
        self.handles[number] = handle
        self.kinds[number] = kind

    def one(self, *kinds):
        known = [number for number, kind in self.kinds.items() if not kinds or kind in kinds]
        return self.random.choice(known) if known else None

    def bytes(self):
        return self.random.randrange(1, max(2, self.total // self.random.choice([2, 5, 20, 100])))

    # ---- steps: each chooses its arguments, and returns them with the call ----

    def enter(self):
        return {"do": "enter"}, self.context.push

    def leave(self):
        if len(DRIVER.contexts) < 2:
            return None
        return {"do": "leave"}, self.context.pop

    def memalloc(self):
        size = self.bytes()
        step = {"do": "memalloc", "bytes": size}
        return step, lambda: self.keep(self.context.memalloc(size), "memory")

    def managed(self):
        size, to_all = self.bytes(), self.random.random() < 0.7
        step = {"do": "managed", "bytes": size, "global": to_all}
        return step, lambda: self.keep(self.context.memallocmanaged(size, to_all), "memory")

    def host(self):
        size = self.bytes()
        mapped, portable, combined = (self.random.random() < 0.5 for _ in range(3))
        step = {"do": "host", "bytes": size, "mapped": mapped, "portable": portable}
        step["write_combined"] = combined
        kind = "memory" if mapped else "pinned"
        return step, lambda: self.keep(
            self.context.memhostalloc(size, mapped, portable, combined), kind
        )

    def pin(self):
        region, mapped = self.random.randrange(len(device.REGIONS)), self.random.random() < 0.5
        step = {"do": "pin", "region": region, "mapped": mapped}
        kind = "memory" if mapped else "pinned"
        address = device.REGIONS[region]
        return step, lambda: self.keep(
            self.context.mempin(object(), address, device.REGION_BYTES, mapped), kind
        )

    def raw(self):
        """A pointer as plug-ins make them, with a finalizer of their own."""
        is_auto = self.random.random() < 0.5
        address = DRIVER.give(100)
        name = DRIVER.name(address)
        make = AutoFreePointer if is_auto else MemoryPointer

        def call():
            pointer = binding.CUdeviceptr(address)
            finalizer = lambda: DRIVER.note("final", name)  # noqa: E731
            self.keep(make(self.context, pointer, 100, finalizer=finalizer), "raw")

        return {"do": "raw", "auto_free": is_auto}, call

    def own(self):
        of = self.one("memory", "pinned", "raw", "view", "raw view")
        if of is None:
            return None
        kind = {"raw": "owner"}.get(self.kinds[of], self.kinds[of])
        return {"do": "own", "of": of}, lambda: self.keep(self.handles[of].own(), kind)

    def view(self):
        of = self.one("memory", "raw", "owner", "view", "raw view")
        if of is None:
            return None
        kind = "view" if self.kinds[of] in ("memory", "view") else "raw view"
        start = self.random.randrange(60)
        stop = None if self.random.random() < 0.5 else self.random.randrange(120)
        step = {"do": "view", "of": of, "start": start, "stop": stop}
        return step, lambda: self.keep(self.handles[of].view(start, stop), kind)

    def drop(self):
        of = self.one()
        if of is None:
            return None
        step = {"do": "drop", "of": of}

        def call():
            del self.kinds[of], self.handles[of]

        return step, call

    def free(self):
        of = self.one("memory", "raw", "owner", "view", "raw view")
        return None if of is None else ({"do": "free", "of": of}, lambda: self.handles[of].free())

    def fill(self):
        of = self.one("memory", "view")
        if of is None:
            return None
        value = self.random.randrange(256)
        return {"do": "fill", "of": of, "value": value}, lambda: self.handles[of].memset(value)

    def ipc(self):
        of = self.one("memory", "pinned", "view")
        if of is None:
            return None
        return {"do": "ipc", "of": of}, lambda: self.keep(
            self.context.get_ipc_handle(self.handles[of]), "ipc"
        )

    def defer(self):
        def call():
            deferral = self.context.defer_cleanup()
            deferral.__enter__()
            self.deferrals.append(deferral)

        return {"do": "defer"}, call

    def end_deferral(self):
        if not self.deferrals:
            return None
        return {"do": "end_deferral"}, lambda: self.deferrals.pop().__exit__(None, None, None)

    def change_limits(self):
        count, ratio = self.random.randrange(12), self.random.choice([0.0, 0.1, 0.2, 0.5, 1.0])
        step = {"do": "limits", "count": count, "ratio": ratio}
        return step, lambda: self.limits(count, ratio)

    def info(self):
        return {"do": "info"}, self.context.get_memory_info

    def reset(self):
        return {"do": "reset"}, self.context.memory_manager.reset

    STEPS = {
        enter: 1, leave: 1, memalloc: 10, managed: 4, host: 6, pin: 4, raw: 2, own: 4, view: 5,
        drop: 22, free: 4, fill: 3, ipc: 2, defer: 2, end_deferral: 3, change_limits: 2, info: 1,
        reset: 1,
    }

    # What a step's calls of the driver may fail with.
    FAILURES = {
        "memalloc": ["alloc"], "managed": ["alloc_managed"], "host": ["alloc_pinned"],
        "pin": ["register"], "drop": ["free", "free_pinned", "unregister", "final"],
        "free": ["free", "free_pinned", "unregister", "final"], "fill": ["memset"],
        "ipc": ["ipc"], "info": ["info"],
    }

    def failing(self, do):
        """Which calls of a step fail, and with which code: few do."""
        if do not in self.FAILURES or self.random.random() > 0.04:
            return {}
        code = self.random.choice([1, 2, 2, 700])
        if do in ("fill", "info", "drop", "free"):
            code = 700
        return {call: code for call in self.FAILURES[do]}

    # ---- what is seen ----

    def step(self, first=None):
        choice = first and first()
        while not choice:
            kinds, weights = zip(*self.STEPS.items())
            choice = self.random.choices(kinds, weights)[0](self)
        step, call = choice
        step["fails"] = DRIVER.failing = self.failing(step["do"])
        DRIVER.calls, self.lost = [], 0
        refused = None
        try:
            call()
        except (CudaDriverError, RuntimeError, ReferenceError) as error:
            refused = named(error)
        except Exception as error:  # numba-cuda raises this class itself
            refused = named(error)
        del call, choice
        waiting = self.context.memory_manager.deallocations
        step["seen"] = {
            "refused": refused, "calls": list(DRIVER.calls), "lost": self.lost,
            "pending": [len(waiting), waiting._size],
        }
        self.steps.append(step)

    def run(self):
        sys.unraisablehook = self.lose
        DRIVER.contexts = []
        self.step(self.enter)
        for _ in range(self.random.randrange(4, 40)):
            self.step()
        return {"total": self.total, "can_map": self.can_map, "steps": self.steps}

    def lose(self, unraisable):
        named(unraisable.exc_value)
        self.lost += 1

    def close(self):
        """Lets everything go, so that nothing of it is seen in the next scenario."""
        DRIVER.failing = {}
        for deferral in self.deferrals:
            deferral.__exit__(None, None, None)
        self.handles.clear()
        self.context.memory_manager.reset()


def main():
    seed, count = sys.argv[1], int(sys.argv[2])
    # References alone let memory go, at a time that the scenario decides.
    gc.disable()
    for number in range(count):
        scenario = Scenario(random.Random(f"{seed}:{number}"))
        line = scenario.run()
        scenario.close()
        print(json.dumps({"number": number, **line}, separators=(",", ":")))
        if number % 500 == 499:
            gc.collect()


if __name__ == "__main__":
    main()
