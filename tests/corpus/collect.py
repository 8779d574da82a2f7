#!/usr/bin/env python3
"""Collects the cases of the corpus from the comments of kernels/* into corpus.json.

A case is described beside its kernel, in lines that begin with `//: `:

    case NAME                                   a case begins
    BUFFER TYPE COUNT RULE [result] [sorted] [near BOUND] [symbol]
    stdout [sorted]                             what is printed is compared
    fails                                       the last launch ends in an error
    [for V FROM TO:] KERNEL<<<GRID, BLOCK[, SHARED]>>>(ARGUMENTS) [cooperative]

TYPE is u8 to u64, s8 to s64, f32 or f64. GRID and BLOCK are like 4, 2x3 or 2x3x4. An argument is a
buffer, `TYPE VALUE`, `bytes HEX` or `random WORDS`. {V} in a launch is the loop's number.

RULE gives the contents before the first launch, for the element i:
    zero, iota, fill V, linear START STEP, random, below N, text "..."
`random` and `below` take the bits of the splitmix64 sequence of the buffer's seed (see run_gpu.py).

`result` says that the buffer is compared after all launches; `sorted`: as a sorted list of
elements; `near`: each float may differ by BOUND times the recorded one (at least BOUND); `symbol`:
it is the module's variable of that name.
"""
import json
import pathlib
import re
import zlib

here = pathlib.Path(__file__).parent


def dimensions(text):
    sizes = [int(part) for part in text.strip().split("x")]
    return sizes + [1] * (3 - len(sizes))


def buffer(words, line):
    name, kind, count, rule = words[:4]
    rest = words[4:]
    out = {"name": name, "type": kind, "count": int(count)}
    if rule == "text":
        content = re.search(r'"(.*)"', line)[1]
        out["rule"] = ["text", content]
        rest = line[line.rindex('"') + 1 :].split()
    elif rule in ("result", "symbol"):
        rest = words[3:]
        out["rule"] = None
    else:
        takes = {"zero": 0, "iota": 0, "random": 0, "fill": 1, "below": 1, "linear": 2}[rule]
        out["rule"] = [rule] + [float(v) if kind[0] == "f" else int(v) for v in rest[:takes]]
        rest = rest[takes:]
    out["seed"] = zlib.crc32(name.encode()) & 0xFFFF
    while rest:
        word = rest.pop(0)
        assert word in ("result", "sorted", "near", "symbol"), line
        out[word] = float(rest.pop(0)) if word == "near" else True
    return out


def argument(text):
    words = text.split()
    if len(words) == 1:
        return words[0]
    if words[0] == "bytes":
        return ["bytes", words[1]]
    if words[0] == "random":
        return ["random", int(words[1])]
    return [words[0], float(words[1]) if words[0][0] == "f" else int(words[1])]


def launch(text):
    kernel, shape, arguments, options = re.fullmatch(r"(\w+)<<<(.*)>>>\((.*)\)(.*)", text).groups()
    shape = shape.split(",")
    out = {"kernel": kernel, "grid": dimensions(shape[0]), "block": dimensions(shape[1])}
    if len(shape) > 2:
        out["shared"] = int(shape[2])
    if options.strip() == "cooperative":
        out["cooperative"] = True
    out["arguments"] = [argument(part) for part in arguments.split(",") if part.strip()]
    return out


def cases(path):
    ptx = f"ptx/{path.stem}.ptx" if path.suffix == ".cu" else f"kernels/{path.name}"
    found = []
    for line in path.read_text().splitlines():
        if not line.startswith("//: "):
            continue
        line = line[4:]
        words = line.split()
        loop = re.fullmatch(r"for (\w+) (\d+) (\d+): (.*)", line)
        if words[0] == "case":
            found.append({"name": words[1], "ptx": ptx, "buffers": [], "launches": []})
        elif loop:
            name, first, end, text = loop.groups()
            for k in range(int(first), int(end)):
                found[-1]["launches"].append(launch(text.replace("{" + name + "}", str(k))))
        elif "<<<" in line:
            found[-1]["launches"].append(launch(line))
        elif words[0] == "stdout":
            found[-1]["stdout"] = "sorted" if "sorted" in words else "exact"
        elif words[0] == "fails":
            found[-1]["fails"] = True
        else:
            found[-1]["buffers"].append(buffer(words, line))
    return found


def main():
    every = []
    for path in sorted((here / "kernels").iterdir()):
        if path.suffix in (".cu", ".ptx"):
            every += cases(path)
    # The same cases over the PTX of NVRTC.
    for name in (here / "nvrtc.txt").read_text().split():
        for case in cases(here / "kernels" / f"{name}.cu"):
            every.append(case | {"name": case["name"] + "@nvrtc", "ptx": f"ptx/nvrtc/{name}.ptx"})
    names = [case["name"] for case in every]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
    lines = ",\n".join(json.dumps(case) for case in every)
    (here / "corpus.json").write_text(f"[\n{lines}\n]\n")
    print(len(every), "cases")


main()
