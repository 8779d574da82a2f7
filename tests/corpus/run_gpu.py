#!/usr/bin/env python3
"""Runs the cases of corpus.json on a GPU through libcuda, and writes what they left.

usage: run_gpu.py OUT [CORPUS.json]

OUT/results.json holds per case the status and, for each result buffer, its place in
OUT/results.bin. A child process runs the cases one after the other; a new one goes on after a case
that failed or did not end within 20 seconds.
"""
import array
import ctypes
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

FORMATS = {"u8": "B", "s8": "b", "u16": "H", "s16": "h", "u32": "I", "s32": "i", "u64": "Q", "s64": "q", "f32": "f", "f64": "d"}
MASK = (1 << 64) - 1


def splitmix(seed, i):
    """The i-th number of the splitmix64 sequence of a seed."""
    z = (seed + (i + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def element(rule, seed, kind, i):
    name = rule[0]
    if name == "zero":
        return 0
    if name == "iota":
        return i
    if name == "fill":
        return rule[1]
    if name == "linear":
        return rule[1] + rule[2] * i
    bits = splitmix(seed, i)
    if name == "below":
        return bits % int(rule[1])
    if kind == "f32":
        return (bits >> 40) / (1 << 23) - 1
    if kind == "f64":
        return (bits >> 11) / (1 << 52) - 1
    return bits


def contents(buffer):
    kind, count, rule = buffer["type"], buffer["count"], buffer["rule"]
    if rule[0] == "text":
        return rule[1].encode().ljust(count, b"\0")[:count]
    values = (element(rule, buffer["seed"], kind, i) for i in range(count))
    if kind[0] == "f":
        return struct.pack(f"<{count}{FORMATS[kind]}", *values)
    size = int(kind[1:]) // 8
    return b"".join((value & ((1 << 8 * size) - 1)).to_bytes(size, "little") for value in values)


class Stopped(Exception):
    pass


def check(status):
    if status != 0:
        raise Stopped(status)


def value_of(argument, addresses):
    """The bytes of a kernel's argument."""
    if isinstance(argument, str):
        return struct.pack("<Q", addresses[argument])
    kind, value = argument
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "random":
        return b"".join(struct.pack("<I", splitmix(1, i) & 0xFFFFFFFF) for i in range(value))
    if kind[0] == "f":
        return struct.pack("<" + FORMATS[kind], value)
    size = int(kind[1:]) // 8
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


class Gpu:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        check(self.cuda.cuInit(0))
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device))
        check(self.cuda.cuCtxSetCurrent(self.context))
        self.modules = {}

    def module(self, path):
        # A fresh module per case: its variables begin with their first contents.
        module = ctypes.c_void_p()
        check(self.cuda.cuModuleLoadData(ctypes.byref(module), pathlib.Path(path).read_bytes() + b"\0"))
        return module

    def launch(self, module, launch, addresses):
        function = ctypes.c_void_p()
        check(self.cuda.cuModuleGetFunction(ctypes.byref(function), module, launch["kernel"].encode()))
        shared = launch.get("shared", 0)
        if shared > 48 * 1024:
            check(self.cuda.cuFuncSetAttribute(function, 8, shared))
        values = [value_of(argument, addresses) for argument in launch["arguments"]]
        holders = [ctypes.create_string_buffer(value, len(value)) for value in values]
        pointers = (ctypes.c_void_p * max(1, len(holders)))(*[ctypes.addressof(holder) for holder in holders])
        sizes = [ctypes.c_uint(size) for size in launch["grid"] + launch["block"]]
        call = self.cuda.cuLaunchCooperativeKernel if launch.get("cooperative") else self.cuda.cuLaunchKernel
        last = [] if launch.get("cooperative") else [None]
        check(call(function, *sizes, ctypes.c_uint(shared), None, pointers, *last))

    def case(self, root, case):
        module = self.module(root / case["ptx"])
        addresses = {}
        for buffer in case["buffers"]:
            address, size = ctypes.c_uint64(), ctypes.c_size_t()
            length = buffer["count"] * int(buffer["type"][1:]) // 8
            if buffer.get("symbol"):
                check(self.cuda.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), module, buffer["name"].encode()))
                assert size.value == length, (buffer["name"], size.value)
            else:
                check(self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(length)))
            addresses[buffer["name"]] = address.value
            if buffer["rule"]:
                check(self.cuda.cuMemcpyHtoD_v2(address, contents(buffer), ctypes.c_size_t(length)))
        for launch in case["launches"]:
            self.launch(module, launch, addresses)
        check(self.cuda.cuCtxSynchronize())
        results = {}
        for buffer in case["buffers"]:
            if buffer.get("result"):
                length = buffer["count"] * int(buffer["type"][1:]) // 8
                host = ctypes.create_string_buffer(length)
                check(self.cuda.cuMemcpyDtoH_v2(host, ctypes.c_uint64(addresses[buffer["name"]]), ctypes.c_size_t(length)))
                data = host.raw
                if buffer.get("sorted"):
                    data = sorted_bytes(data, buffer["type"])
                results[buffer["name"]] = data.hex()
        for buffer in case["buffers"]:
            if not buffer.get("symbol"):
                check(self.cuda.cuMemFree_v2(ctypes.c_uint64(addresses[buffer["name"]])))
        check(self.cuda.cuModuleUnload(module))
        return results


def sorted_bytes(data, kind):
    values = array.array(FORMATS[kind])
    values.frombytes(data)
    return array.array(FORMATS[kind], sorted(values)).tobytes()


def child(corpus, names):
    """Runs cases; a line of JSON per case on the descriptor 3."""
    root = corpus.parent
    report = os.fdopen(3, "w")
    cases = {case["name"]: case for case in json.loads(corpus.read_text())}
    gpu = Gpu()
    for name in names:
        answer = {"name": name, "status": 0}
        with tempfile.TemporaryFile() as text:
            os.dup2(text.fileno(), 1)
            try:
                answer["results"] = gpu.case(root, cases[name])
            except Stopped as stopped:
                answer["status"] = stopped.args[0]
            text.seek(0)
            answer["stdout"] = text.read().decode("latin-1")
        print(json.dumps(answer), file=report, flush=True)
        if answer["status"]:
            os._exit(0)
    os._exit(0)


def answers(corpus, names):
    """Each case's answer; a new child takes over after a case that broke or did not end."""
    import select

    while names:
        read, write = os.pipe()
        os.set_inheritable(write, True)

        def place():
            os.dup2(write, 3)

        command = [sys.executable, __file__, "--child", str(corpus), *names]
        process = subprocess.Popen(command, close_fds=False, preexec_fn=place, stdout=subprocess.DEVNULL)
        os.close(write)
        pending, waited = b"", 20
        while names:
            ready, _, _ = select.select([read], [], [], waited)
            piece = os.read(read, 1 << 20) if ready else None
            if not piece:
                break
            pending += piece
            while b"\n" in pending:
                line, pending = pending.split(b"\n", 1)
                answer = json.loads(line)
                assert answer["name"] == names[0]
                names = names[1:]
                yield answer
                if answer["status"]:
                    piece = None
            if piece is None:
                break
        else:
            os.close(read)
            process.wait()
            return
        broke = piece is not None or not ready
        process.kill()
        process.wait()
        os.close(read)
        if broke and names:
            yield {"name": names[0], "status": -1}
            names = names[1:]


def main():
    out = pathlib.Path(sys.argv[1])
    corpus = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).parent / "corpus.json"
    cases = json.loads(corpus.read_text())
    data, table, places = bytearray(), [], {}
    for answer in answers(corpus, [case["name"] for case in cases]):
        row = {"name": answer["name"], "status": answer["status"]}
        if answer.get("stdout"):
            row["stdout"] = answer["stdout"]
        row["results"] = {}
        for name, content in answer.get("results", {}).items():
            content = bytes.fromhex(content)
            # Equal results of two builds of one case share a place.
            if content not in places:
                places[content] = len(data)
                data += content
            row["results"][name] = [places[content], len(content)]
        table.append(row)
        if row["status"]:
            print(row["name"], "ended with", row["status"], flush=True)
    out.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(row) for row in table)
    (out / "results.json").write_text(f"[\n{rows}\n]\n")
    (out / "results.bin").write_bytes(data)
    print(len(table), "cases,", len(data), "bytes")


if len(sys.argv) > 1 and sys.argv[1] == "--child":
    child(pathlib.Path(sys.argv[2]), sys.argv[3:])
else:
    main()
