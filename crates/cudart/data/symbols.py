#!/usr/bin/env python3
"""Makes symbols.tsv, the table of the runtime's functions, from two releases of the CUDA runtime.

usage: symbols.py FOLDER12 FOLDER13 CRT > symbols.tsv
       symbols.py FOLDER12 FOLDER13 CRT --check symbols.tsv

FOLDER12 and FOLDER13 are what the packages `nvidia-cuda-runtime-cu12` and `nvidia-cuda-runtime` (of
PyPI) have: `include/cuda_runtime_api.h` and `lib/libcudart.so.12` or `.13`. CRT is the folder above
`crt/host_defines.h` of the package `nvidia-cuda-crt`. The script needs a C preprocessor (`cc -E`)
and `nm`.

Each row is a symbol that a release exports:
  major       the release's major version
  symbol      the exported symbol
  form        the function of this crate that the symbol means; two releases can give one name to
              two functions, and two names to one
  stream      which default stream the symbol means: legacy, or per-thread (suffixes _ptds, _ptsz)
  returns     the C type of the result
  parameters  the C types of the parameters, separated by commas; "?" if no header declares them
"""

import pathlib
import re
import subprocess
import sys

DECLARED = re.compile(
    r"(cudaError_t|const char ?\*|struct cudaChannelFormatDesc) ?((?:__)?cuda\w+) ?"
    r"\(([^()]*(?:\([^()]*\)[^()]*)*)\) ?;"
)
BUILTIN = {"*", "const", "unsigned", "long", "int", "short", "char", "float", "void", "size_t"}

# What code from nvcc calls, which crt/host_runtime.h and crt/device_functions.h declare, and the
# functions of cuda_profiler_api.h.
OTHERS = """
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);
void ** __cudaRegisterFatBinary(void * a);
void __cudaRegisterFatBinaryEnd(void ** a);
void __cudaUnregisterFatBinary(void ** a);
void __cudaRegisterVar(void ** a, char * b, char * c, const char * d, int e, size_t f, int g, int h);
void __cudaRegisterManagedVar(void ** a, void ** b, char * c, const char * d, int e, size_t f, int g, int h);
char __cudaInitModule(void ** a);
void __cudaRegisterFunction(void ** a, const char * b, char * c, const char * d, int e, uint3 * f, uint3 * g, dim3 * h, dim3 * i, int * j);
unsigned int __cudaPushCallConfiguration(dim3 a, dim3 b, size_t c, CUstream_st * d);
cudaError_t __cudaPopCallConfiguration(dim3 * a, dim3 * b, size_t * c, void * d);
cudaError_t __cudaGetKernel(cudaKernel_t * a, const void * b);
cudaError_t __cudaLaunchKernel(cudaKernel_t a, dim3 b, dim3 c, void ** d, size_t e, cudaStream_t f);
"""

# Functions whose results depend on the release, though their parameters have the same types: a
# structure has another layout, or the release's own version is the answer.
FORMS_OF_12 = {
    "cudaChooseDevice": "cudaChooseDevice_12",
    "cudaGetDeviceProperties": "cudaGetDeviceProperties_11",
    "cudaGetDeviceProperties_v2": "cudaGetDeviceProperties_12",
    "cudaGetDriverEntryPoint": "cudaGetDriverEntryPoint_12",
    "cudaPointerGetAttributes": "cudaPointerGetAttributes_12",
    "cudaRuntimeGetVersion": "cudaRuntimeGetVersion_12",
}


def preprocessed(folder, crt, internal):
    """The declarations of cuda_runtime_api.h, of the internal build or the ordinary one."""
    command = ["cc", "-E", "-P", "-D__host__=", "-D__cudart_builtin__=", "-DCUDARTAPI="]
    command += ["-D__CUDA_API_VERSION_INTERNAL"] if internal else []
    command += ["-I", str(folder / "include"), "-I", str(crt), "-"]
    header = (folder / "include/cuda_runtime_api.h").read_text()
    # Default values of parameters are for C++.
    header = re.sub(r"(?<!define) __dv\(\w*\)", "", header)
    run = subprocess.run(command, input=header, check=True, capture_output=True, text=True)
    return " ".join(run.stdout.split())


def parameters(text):
    """The types of a list of parameters, each without its name and in one spelling."""
    types = []
    for one in re.split(r",(?![^(]*\))", text):
        one = one.strip()
        if one in ("", "void"):
            continue
        one = re.sub(r"\w*\s*\[\w*\]$", " *", one)
        words = re.sub(r"\s*\*\s*", " * ", one).split()
        named = [word for word in words[:-1] if word not in ("const", "struct", "enum")]
        if named and words[-1] not in BUILTIN:
            words.pop()
        words = [word for word in words if word not in ("struct", "enum")]
        if "*" not in words:
            words = [word for word in words if word != "const"]
        types.append(" ".join(words))
    return types


def declared(folder, crt):
    """The functions that a release's headers declare: name to result and parameters."""
    found = {}
    for internal in (False, True):
        for returns, name, arguments in DECLARED.findall(preprocessed(folder, crt, internal)):
            found[name] = (returns.replace("struct ", ""), parameters(arguments))
    for line in OTHERS.strip().splitlines():
        returns, name, arguments = re.match(r"(.*?) (\w+)\((.*)\);", line).groups()
        found[name] = (returns, parameters(arguments))
    return found


def exported(folder, major):
    """The symbols of a release's library."""
    library = folder / f"lib/libcudart.so.{major}"
    command = ["nm", "-D", "--defined-only", str(library)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    symbols = {line.split()[-1].split("@")[0] for line in lines}
    return sorted(symbol for symbol in symbols if "cuda" in symbol and ".so" not in symbol)


def rows(folder12, folder13, crt):
    """The rows of the table."""
    newest = declared(folder13, crt)
    for major, folder in (("12", folder12), ("13", folder13)):
        known = declared(folder, crt)
        for symbol in exported(folder, major):
            legacy = re.sub(r"_(ptsz|ptds)$", "", symbol)
            stream = "legacy" if legacy == symbol else "per-thread"
            returns, types = known.get(symbol) or known.get(legacy) or ("cudaError_t", ["?"])
            form = legacy
            if major == "12":
                base = re.sub(r"_v\d$", "", legacy)
                if legacy in FORMS_OF_12:
                    form = FORMS_OF_12[legacy]
                elif base in newest and newest[base][1] == types:
                    form = base
                elif legacy in newest and types != ["?"] and newest[legacy][1] != types:
                    form = f"{legacy}_v1"
            yield "\t".join([major, symbol, form, stream, returns, ", ".join(types)])


def main():
    """Prints the table, or compares it with one that was kept."""
    lines = list(rows(*map(pathlib.Path, sys.argv[1:4])))
    head = "major\tsymbol\tform\tstream\treturns\tparameters"
    text = "\n".join([head, *lines, ""])
    if sys.argv[4:5] != ["--check"]:
        sys.stdout.write(text)
    elif pathlib.Path(sys.argv[5]).read_text() != text:
        sys.exit(f"{sys.argv[5]} is not what the releases say")


if __name__ == "__main__":
    main()
