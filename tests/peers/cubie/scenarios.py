"""Random scenarios carried out with cubie's own memory manager, one JSON line for each.

A line holds the device's memory and the steps. Each step has what was done, and what was seen after
it: a refusal, warnings, hooks in the order of their calls, and the state of every instance.

    scenarios.py SEED COUNT
"""

import json
import random
import sys
import warnings

import device

device.install()

import numpy  # noqa: E402
from cubie.memory.array_requests import ArrayRequest  # noqa: E402
from cubie.memory.mem_manager import MemoryManager, NoCudaDeviceError  # noqa: E402

INSTANCES = 5
GROUPS = ["default", "a", "b"]
OWNERS = [1, 2]
LABELS = ["x", "y", "z"]
TYPES = {"f32": numpy.float32, "f64": numpy.float64, "i32": numpy.int32}
MEBIBYTE = 1 << 20

# The start of cubie's messages, and the names that the other side gives to the same refusals.
REFUSALS = {
    "Proportion must be between": "proportion",
    "Manual proportion would exceed": "sum of shares",
    "Manual proportion would leave": "auto pool",
    "Available auto-allocation pool": "auto pool",
    "All requested arrays are unchunkable": "nothing to chunk",
    "Unchunkable arrays require": "unchunkable",
    "Can't fit a single run": "single run",
    "the device could not allocate": "out of memory",
    "the memory manager found no CUDA device": "no device",
}
WARNINGS = {
    "Manual proportion leaves less": "large manual pool",
    "Stream group": "near cap",
    "This request exceeds available VRAM": "much larger",
}


def named(message, names):
    for start, name in names.items():
        if message.startswith(start):
            return name
    raise AssertionError(f"a message without a name: {message}")


def made_request(fields):
    return ArrayRequest(
        dtype=TYPES[fields["dtype"]],
        shape=tuple(fields["shape"]),
        chunk_axis_index=fields["axis"],
        unchunkable=fields["unchunkable"],
        total_runs=fields["runs"],
    )


class Client:
    """An instance as cubie's users have them: an object whose methods are its hooks."""

    def __init__(self, number, heard, owner):
        self.number = number
        self.heard = heard
        self.other_owner = owner
        self.submits = False

    @property
    def owner(self):
        # Not an attribute: an object that refers to itself goes late.
        return self if self.other_owner is None else self.other_owner

    def invalidate(self):
        self.heard.append({"hook": "invalidate", "who": self.number})

    def ready(self, response):
        told = {"hook": "ready", "who": self.number}
        told["chunks"] = int(response.chunks)
        told["chunk_length"] = int(response.chunk_length)
        told["arrays"] = {label: list(array.shape) for label, array in response.arr.items()}
        told["shapes"] = {label: list(shape) for label, shape in response.chunked_shapes.items()}
        self.heard.append(told)


class Owner:
    """What the instances of one owner have in common: an object."""


class Scenario:
    def __init__(self, random_numbers):
        self.random = random_numbers
        total = self.random.randrange(100, 4000) * MEBIBYTE + self.random.randrange(1000)
        free = total - self.random.randrange(total // 2)
        device.DEVICE.reset(total, free)
        self.start = {"total": total, "free": free}
        self.manager = MemoryManager()
        self.heard = []
        self.clients = {}
        self.owners = {number: Owner() for number in OWNERS}
        # Most computations keep their number of runs.
        self.runs = self.random.choice([1, 2, 7, 100, 1000, 12345, 1 << 20])
        self.crowded = self.random.random() < 0.3
        # Most solvers ask for all their arrays each time; some for a part.
        self.parts = self.random.random() < 0.3
        self.steps = []

    # ---- steps: each chooses its arguments, and returns them with the call ----

    def register(self):
        free = [number for number in range(INSTANCES) if number not in self.clients]
        if not free:
            return None
        who = self.random.choice(free)
        share = self.random.choice([None, None, self.share()])
        group = self.random.choice(GROUPS)
        number = self.random.choice([None, *OWNERS])
        owner = self.owners.get(number)

        def call():
            client = self.clients[who] = Client(who, self.heard, owner)
            self.manager.register(
                client,
                proportion=share,
                invalidate_cache_hook=client.invalidate,
                allocation_ready_hook=client.ready,
                stream_group=group,
                owner=owner,
            )

        step = {"op": "register", "who": who, "share": share, "group": group, "owner": number}
        return step, call

    def share(self):
        if self.random.random() < 0.04:
            return self.random.choice([0.0, 0.95, 1.0])
        return self.random.randrange(5, 30) / 100

    def anyone(self):
        return self.random.choice(sorted(self.clients)) if self.clients else None

    def set_manual(self):
        who, share = self.anyone(), self.share()
        call = lambda: self.manager.set_manual_proportion(self.clients[who], share)
        return who is not None and ({"op": "set_manual", "who": who, "share": share}, call)

    def set_manual_mode(self):
        who, share = self.anyone(), self.share()
        call = lambda: self.manager.set_manual_limit_mode(self.clients[who], share)
        return who is not None and ({"op": "set_manual_mode", "who": who, "share": share}, call)

    def set_auto(self):
        who = self.anyone()
        call = lambda: self.manager.set_auto_limit_mode(self.clients[who])
        return who is not None and ({"op": "set_auto", "who": who}, call)

    def change_group(self):
        who, group = self.anyone(), self.random.choice(GROUPS)
        call = lambda: self.manager.change_stream_group(self.clients[who], group)
        return who is not None and ({"op": "change_group", "who": who, "group": group}, call)

    def release(self):
        who = self.anyone()

        def call():
            # It goes with its object, at the next call.
            del self.clients[who]
            self.manager._purge_dead_instances()

        return who is not None and ({"op": "release", "who": who}, call)

    def update(self):
        who, changes = self.anyone(), {}
        if self.random.random() < 0.6:
            changes["stream_group"] = self.random.choice(GROUPS)
        if self.random.random() < 0.6:
            changes["mem_proportion"] = self.random.choice([None, self.share()])
        call = lambda: self.manager.update(self.clients[who], changes)
        return who is not None and ({"op": "update", "who": who, "changes": changes}, call)

    def request(self):
        """A request, and the fields that it is made of."""
        fields = {"dtype": self.random.choice(list(TYPES)), "axis": None, "runs": self.runs}
        size = numpy.dtype(TYPES[fields["dtype"]]).itemsize
        parts = [0.2, 0.3] if self.crowded else [0.001, 0.01, 0.05, 0.2, 0.4, 0.7, 0.96, 1.1, 3, 40]
        wanted = self.random.choice(parts)
        wanted = int(wanted * self.start["free"] * self.random.uniform(0.5, 1.0)) // size
        fields["unchunkable"] = self.random.random() < 0.2
        if fields["unchunkable"]:
            fields["shape"] = [min(wanted, self.start["free"] // 8 // size) + 1]
            return fields
        each = wanted // self.runs + 1
        fields["axis"] = self.random.choice([0, 2])
        fields["shape"] = [self.runs, each] if fields["axis"] == 0 else [each, 1, self.runs]
        return fields

    def queue(self):
        who = self.anyone()
        number = self.random.choice([1, 1, 2, 3])
        labels = sorted(self.random.sample(LABELS, number)) if self.parts else LABELS[:2]
        fields = {label: self.request() for label in labels}
        made = {label: made_request(each) for label, each in fields.items()}
        call = lambda: self.manager.queue_request(self.clients[who], made)
        return who is not None and ({"op": "queue", "who": who, "requests": fields}, call)

    def allocate(self):
        queued = self.manager._queued_allocations.values()
        waiting = [who for who, client in self.clients.items() if any(id(client) in q for q in queued)]
        who = self.random.choice(waiting or [self.anyone()])
        call = lambda: self.manager.allocate_queue(self.clients[who])
        return who is not None and ({"op": "allocate", "who": who}, call)

    def chunks(self):
        group, fields = self.random.choice(GROUPS), self.request()
        step = {"op": "chunks", "group": group, "request": fields, "runs": self.runs}
        # A question in no instance's name.
        requests = {-1: {"x": made_request(fields)}}
        call = lambda: self.manager.get_chunk_parameters(requests, self.runs, group)
        return bool(self.manager.stream_groups.get_instances_in_group(group)) and (step, call)

    def available(self):
        group = self.random.choice(GROUPS)
        call = lambda: self.manager.get_available_memory(group)
        known = bool(self.manager.stream_groups.get_instances_in_group(group))
        return known and ({"op": "available", "group": group}, call)

    def free(self):
        label = self.random.choice([*LABELS, "unknown"])
        return {"op": "free", "label": label}, lambda: self.manager.free(label)

    def free_all(self):
        return {"op": "free_all"}, self.manager.free_all

    def invalidate_all(self):
        return {"op": "invalidate_all"}, self.manager.invalidate_all

    def mode(self):
        mode = self.random.choice(["active", "passive"])
        return {"op": "mode", "mode": mode}, lambda: self.manager.set_limit_mode(mode)

    def begin(self):
        who = self.anyone()
        if who is None or self.submits(who):
            return None

        def call():
            self.clients[who].submits = True
            self.manager.begin_work(self.clients[who].owner)

        return {"op": "begin", "who": who}, call

    def end(self):
        working = [who for who, client in self.clients.items() if client.submits]
        if not working:
            return None
        client = self.clients[working[0]]

        def call():
            client.submits = False
            self.manager.end_work(client.owner, self.manager.get_stream(client))

        return {"op": "end", "who": working[0]}, call

    def work(self):
        who = self.anyone()
        if who is None or self.submits(who):
            return None
        client = self.clients[who]

        def call():
            self.manager.begin_work(client.owner)
            self.manager.end_work(client.owner, self.manager.get_stream(client))

        return {"op": "work", "who": who}, call

    def submits(self, who):
        owner = self.clients[who].owner
        return any(client.submits for client in self.clients.values() if client.owner is owner)

    STEPS = {
        register: 6, set_manual: 2, set_manual_mode: 1, set_auto: 1, change_group: 2, update: 1,
        release: 1, queue: 10, allocate: 10, chunks: 2, available: 1, free: 1, free_all: 1,
        invalidate_all: 1, mode: 1, begin: 1, end: 2, work: 6,
    }
    # Instances that take each other's memory.
    CROWDED = {register: 4, queue: 8, allocate: 10, work: 8}

    # ---- what is seen ----

    def members(self):
        seen = {}
        for who, client in self.clients.items():
            settings = self.manager.registry.get(id(client))
            if settings is None:
                continue
            seen[who] = {
                "share": settings.proportion,
                "cap": settings.cap,
                "is_manual": id(client) in self.manager._manual_pool,
                "is_auto": id(client) in self.manager._auto_pool,
                "group": self.manager.get_stream_group(client),
                "is_grouped": self.manager.is_grouped(client),
                "owner": next((n for n, o in self.owners.items() if o is client.owner), None),
                "holds": settings.allocated_bytes,
                "arrays": {
                    label: list(array.shape) for label, array in settings.allocations.items()
                },
                "queued": self.queued(client),
            }
        return seen

    def queued(self, client):
        queue = self.manager._queued_allocations.get(self.manager.get_stream_group(client), {})
        return sorted(queue.get(id(client), {}))

    def step(self):
        choice = None
        while not choice:
            kinds, weights = zip(*(self.CROWDED if self.crowded else self.STEPS).items())
            choice = self.random.choices(kinds, weights)[0](self)
        step, call = choice
        self.heard.clear()
        seen = {"refused": None, "answer": None}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                answer = call()
                if step["op"] in ("chunks", "available"):
                    seen["answer"] = list(answer) if isinstance(answer, tuple) else [answer]
            except (ValueError, MemoryError, NoCudaDeviceError) as error:
                seen["refused"] = named(str(error), REFUSALS)
            except ZeroDivisionError:
                # Shares of 0, which the other side has refused long before.
                seen["refused"] = "shares of nothing"
        seen["warned"] = sorted({named(str(each.message), WARNINGS) for each in caught})
        # The order of the instances that a call answers is that of a set.
        answers = [each for each in self.heard if each["hook"] == "ready"]
        lost = [each for each in self.heard if each["hook"] == "invalidate"]
        seen["heard"] = lost + sorted(answers, key=lambda each: each["who"])
        seen["members"] = self.members()
        seen["free"] = device.DEVICE.free
        step["seen"] = seen
        self.steps.append(step)
        # cubie leaves what it refuses half done, and no two refusals alike.
        return seen["refused"] is None

    def run(self):
        for _ in range(self.random.randrange(3, 30)):
            if not self.step():
                break
        return {**self.start, "steps": self.steps}


def main():
    seed, count = sys.argv[1], int(sys.argv[2])
    for number in range(count):
        scenario = Scenario(random.Random(f"{seed}:{number}")).run()
        print(json.dumps({"number": number, **scenario}, separators=(",", ":")))


if __name__ == "__main__":
    main()
