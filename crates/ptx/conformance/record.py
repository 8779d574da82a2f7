"""Runs every instruction form on the GPU of this machine and records its results.

    python3 record.py FOLDER [TIMES]

It writes `forms.txt`, one form a line: body, kinds of operands, sizes of results, and the number of
cases; and `results`: the results of all forms in that order, one result operand after the other, low
byte first. (`zstd -19 --long=27` makes `results.zst` of it.) Forms that the GPU's compiler refuses are in
`refused.txt`, with the reason. With TIMES, each form has so many times the cases; the tests compare
such a recording by `PTX_RECORDING=FOLDER`. It needs libcuda and nothing else.
"""

import ctypes
import multiprocessing
import struct
import sys
from pathlib import Path

from form import DECLARED
from forms import FORMS
from operands import BITS, cases, count_of

HEADER = ".version 9.0\n.target sm_90\n.address_size 64\n"
CODES = {16: "H", 32: "I", 64: "Q"}


def in_cluster(body):
    """Whether a form needs a launch with clusters: without them such accesses are illegal instructions."""
    return "mapa" in body and "complete_tx::bytes" in body


def kernel(body, kinds, results):
    """The text of a form's kernel: parameters are the operands, the results, and 16 scratch bytes a thread."""
    count = len(kinds) + len(results) + 1
    params = ", ".join(f".param .u64 p{i}" for i in range(count))
    width = lambda kind: BITS[kind]
    lines = [f".visible .entry form({params})", "{"]
    lines += [f".reg .b{max(16, width(k))} a{i};" for i, k in enumerate(kinds)]
    lines += [f".reg .b{width(r)} d{i};" for i, r in enumerate(results)]
    lines += [".reg .pred p, q;", ".reg .b32 lane, sa, sbase, n, t;", ".reg .b64 ga, at, n8;", ".shared .align 16 .b8 shared[512];"]
    lines += ["mov.u32 lane, %tid.x;", "mov.u32 t, %ctaid.x;", "mad.lo.u32 n, t, 32, lane;", "mov.u32 sbase, shared;", "mad.lo.u32 sa, lane, 16, sbase;"]
    lines += [f"ld.param.u64 ga, [p{count - 1}];", "cvta.to.global.u64 ga, ga;", "mul.wide.u32 n8, n, 16;", "add.u64 ga, ga, n8;"]
    for i, kind in enumerate(kinds):
        size = max(16, width(kind)) // 8
        lines += [f"ld.param.u64 at, [p{i}];", "cvta.to.global.u64 at, at;", f"mul.wide.u32 n8, n, {size};", "add.u64 at, at, n8;", f"ld.global.b{size * 8} a{i}, [at];"]
    lines += [body]
    for i, result in enumerate(results):
        size = width(result) // 8
        lines += [f"ld.param.u64 at, [p{len(kinds) + i}];", "cvta.to.global.u64 at, at;", f"mul.wide.u32 n8, n, {size};", "add.u64 at, at, n8;", f"st.global.b{size * 8} [at], d{i};"]
    lines[0] += " .reqnctapercluster 1" if in_cluster(body) else ""
    declared = [text for name, text in DECLARED.items() if name in body]
    return HEADER + "\n".join(declared + lines + ["ret;", "}"]) + "\n"


class Gpu:
    def __init__(self, size):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.buffers = [self.allocate(size) for _ in range(24)]

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {status}")

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def load(self, text):
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(2048)
        options = (ctypes.c_int * 2)(5, 6)
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), 2048)
        status = self.cuda.cuModuleLoadDataEx(ctypes.byref(module), text.encode() + b"\0", 2, options, values)
        if status:
            return None, log.value.decode(errors="replace")
        return module, ""

    def launch(self, module, name, shape, arguments):
        """Launches so many blocks of so many threads, with arguments of ctypes."""
        function, (blocks, threads) = ctypes.c_void_p(), shape
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, pointers, None)

    def read(self, buffer, size):
        """The first bytes of a buffer, once kernels have ended."""
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, buffer, ctypes.c_size_t(size))
        return data.raw

    def run(self, module, operands, results, count):
        for buffer, data in zip(self.buffers, operands):
            self.call("cuMemcpyHtoD_v2", buffer, data, ctypes.c_size_t(len(data)))
        used = self.buffers[: len(operands) + len(results) + 1]
        self.launch(module, "form", (count // 32, 32), used)
        out = [self.read(buffer, size) for buffer, size in zip(used[len(operands) :], results)]
        self.call("cuModuleUnload", module)
        return out


def reason(log):
    """The first error of a compiler's log."""
    error = next((line for line in log.splitlines() if "error" in line), log)
    return error.split("error", 1)[-1].lstrip(" :").strip()


def operands(form, times):
    """The operands of a form's cases, packed, and the number of cases."""
    body, kinds, _, few = form
    rows = cases(body, kinds, count_of(kinds, few) * times)
    codes = [CODES[max(16, BITS[kind])] for kind in kinds]
    packed = [struct.pack(f"<{len(rows)}{code}", *[row[i] for row in rows]) for i, code in enumerate(codes)]
    return packed, len(rows)


def record(folder, times, made, at):
    """Records the forms from one on, up to one that breaks the context. `at` is the next one."""
    gpu = Gpu(times << 15)
    index, refused = open(Path(folder, "forms.txt"), "a"), open(Path(folder, "refused.txt"), "a")
    with index, refused, open(Path(folder, "results"), "ab") as blob:
        for (body, kinds, results, _), (packed, count) in zip(FORMS[at.value :], made[at.value :]):
            line = "\t".join([body, " ".join(kinds), " ".join(results)])
            at.value += 1
            module, log = gpu.load(kernel(body, kinds, results))
            if module is None:
                refused.write(f"{body}\t{reason(log)}\n")
                continue
            try:
                out = gpu.run(module, packed, [BITS[result] // 8 * count for result in results], count)
            except RuntimeError as error:
                refused.write(f"{body}\t{error}\n")
                return
            blob.write(b"".join(out))
            index.write(f"{line}\t{count}\n")


def main(folder, times=1):
    with multiprocessing.Pool() as pool:
        made = pool.starmap(operands, [(form, times) for form in FORMS], 8)
    for name in ("forms.txt", "refused.txt", "results"):
        Path(folder, name).write_bytes(b"")
    # Each context has a process: an error of a kernel ends all use of the GPU by its process.
    at = multiprocessing.Value("i", 0)
    while at.value < len(FORMS):
        process = multiprocessing.Process(target=record, args=(folder, times, made, at))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)
    lines = lambda name: len(Path(folder, name).read_text().splitlines())
    print(lines("forms.txt"), "forms,", lines("refused.txt"), "refused")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
