#!/usr/bin/env python3
"""Makes symbols.tsv, the table of the driver's entry points, from the headers of a CUDA release.

usage: symbols.py FOLDER > symbols.tsv
       symbols.py FOLDER --check symbols.tsv

FOLDER holds cuda.h, cudaTypedefs.h and their companions for profiling, OpenGL, EGL and VDPAU, as
the package `nvidia-cuda-runtime` (of PyPI) has them in `nvidia/cu13/include`. A newer release knows
all entry points of the older ones. The script needs a C preprocessor (`cc -E`).

Each row is a fact of the headers:
  symbol      the exported symbol
  name        the name that cuGetProcAddress takes: the symbol without its suffixes
  since       the version of CUDA that introduced this form, as cuDriverGetVersion writes it
  stream      which default stream the form means: legacy, or per-thread (suffixes _ptds, _ptsz)
  parameters  the C types of the parameters, separated by commas; names are left out

How a form gets its version: cudaTypedefs.h declares a type PFN_NAME_vVERSION for each form, but not
which symbol has it. The forms of a name, in the order of their versions, are the symbols in the
order of their suffixes (none, _v2, _v3); the parameters have to agree.
"""

import collections
import pathlib
import re
import subprocess
import sys

DECLARED = re.compile(r"CUresult\s+(cu[A-Z]\w*)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*;")
TYPE = re.compile(r"CUresult\s*\(\s*\*\s*PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\)\s*\((.*?)\)\s*;")
SUFFIXES = re.compile(r"^(cu\w+?)(?:_v(\d+))?(_ptds|_ptsz)?$")

BUILTIN = {"*", "const", "unsigned", "long", "int", "short", "char", "float", "void", "size_t"}


def preprocessed(header):
    """The header's declarations under their own symbols: macros that rename them are left out."""
    # Headers of other projects (GL/gl.h) declare none of the driver's functions.
    wanted = re.sub(r'#include (?![<"]cuda)[^\n]*', "", header.read_text())
    command = ["cc", "-E", "-P", "-DCUDAAPI=", "-D__CUDA_API_VERSION_INTERNAL", "-I"]
    command += [str(header.parent), "-"]
    run = subprocess.run(command, input=wanted, check=False, capture_output=True, text=True)
    text = run.stdout
    return " ".join(text.split())


def parameters(text):
    """The types of a list of parameters, each without its name and in one spelling."""
    types = []
    for one in re.split(r",(?![^(]*\))", text):
        one = one.strip()
        if one in ("", "void"):
            continue
        # A parameter that is an array is a pointer.
        one = re.sub(r"\w*\s*\[\w*\]$", " *", one)
        words = re.sub(r"\s*\*\s*", " * ", one).split()
        types_named = [word for word in words[:-1] if word not in ("const", "struct", "enum")]
        if types_named and words[-1] not in BUILTIN:
            words.pop()
        words = [word for word in words if word not in ("struct", "enum")]
        if "*" not in words:
            words = [word for word in words if word != "const"]
        # The types that a release renames, such as CUdevice_v1 for CUdevice.
        types.append(" ".join(re.sub(r"^(CU\w+|cuuint\d+_t)_v\d+$", r"\1", word) for word in words))
    return types


def table(folder):
    """The rows of the table, in the order of their symbols."""
    symbols, forms = collections.defaultdict(list), collections.defaultdict(list)
    for header in ["cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"]:
        for symbol, arguments in DECLARED.findall(preprocessed(folder / header)):
            name, version, stream = SUFFIXES.match(symbol).groups()
            form = (int(version or 1), symbol, parameters(arguments))
            if form not in symbols[name, stream]:
                symbols[name, stream].append(form)
    for header in sorted(folder.glob("cuda*Typedefs.h")):
        for name, since, stream, arguments in TYPE.findall(preprocessed(header)):
            form = (int(since), parameters(arguments))
            if form not in forms[name, stream or None]:
                forms[name, stream or None].append(form)
    for name, stream in sorted({*symbols, *forms}, key=str):
        ours, typed = sorted(symbols[name, stream]), sorted(forms[name, stream])
        if [form[-1] for form in ours] != [form[-1] for form in typed]:
            sys.exit(f"{name}: symbols {ours} do not fit the types {typed}")
        for (_, symbol, types), (since, _) in zip(ours, typed):
            flavour = "per-thread" if stream else "legacy"
            yield "\t".join([symbol, name, str(since), flavour, ", ".join(types)])


def main():
    """Prints the table, or compares it with one that was kept."""
    lines = sorted(table(pathlib.Path(sys.argv[1])))
    text = "\n".join(["symbol\tname\tsince\tstream\tparameters", *lines, ""])
    if sys.argv[2:3] != ["--check"]:
        sys.stdout.write(text)
    elif pathlib.Path(sys.argv[3]).read_text() != text:
        sys.exit(f"{sys.argv[3]} is not what the headers say")


if __name__ == "__main__":
    main()
