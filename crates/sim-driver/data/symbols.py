#!/usr/bin/env python3
"""Makes symbols.tsv, the tables of entry points, from releases of CUDA: the driver's from headers, the
runtime's from headers and libraries.

usage: symbols.py driver FOLDER > symbols.tsv
       symbols.py runtime FOLDER12 FOLDER13 CRT > symbols.tsv
With --check FILE at the end the table is compared with one that was kept.

The script needs a C preprocessor (`cc -E`), and `nm` for the runtime.

The driver. FOLDER holds cuda.h, cudaTypedefs.h and their companions for profiling, OpenGL, EGL and
VDPAU, as the package `nvidia-cuda-runtime` (of PyPI) has them in `nvidia/cu13/include`. A newer
release knows all entry points of the older ones. Each row is a fact of the headers:
  symbol      the exported symbol
  name        the name that cuGetProcAddress takes: the symbol without its suffixes
  since       the version of CUDA that introduced this form, as cuDriverGetVersion writes it
  stream      which default stream the form means: legacy, or per-thread (suffixes _ptds, _ptsz)
  parameters  the C types of the parameters, separated by commas; names are left out

How a form gets its version: cudaTypedefs.h declares a type PFN_NAME_vVERSION for each form, but not
which symbol has it. The forms of a name, in the order of their versions, are the symbols in the
order of their suffixes (none, _v2, _v3); the parameters have to agree.

The runtime. FOLDER12 and FOLDER13 are what the packages `nvidia-cuda-runtime-cu12` and
`nvidia-cuda-runtime` have: `include/cuda_runtime_api.h` and `lib/libcudart.so.12` or `.13`. CRT is the
folder above `crt/host_defines.h` of the package `nvidia-cuda-crt`. Each row is a symbol that a release
exports:
  major       the release's major version
  symbol      the exported symbol
  form        the function of pagewise-cudart that the symbol means; two releases can give one name to
              two functions, and two names to one
  stream      as above
  returns     the C type of the result
  parameters  as above; "?" if no header declares them
"""

import collections
import pathlib
import re
import subprocess
import sys

DRIVER = re.compile(r"CUresult\s+(cu[A-Z]\w*)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*;")
TYPE = re.compile(r"CUresult\s*\(\s*\*\s*PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\)\s*\((.*?)\)\s*;")
SUFFIXES = re.compile(r"^(cu\w+?)(?:_v(\d+))?(_ptds|_ptsz)?$")

RUNTIME = re.compile(
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


def preprocessed(text, options, check):
    """The declarations of a header's text."""
    command = ["cc", "-E", "-P", *options, "-"]
    run = subprocess.run(command, input=text, check=check, capture_output=True, text=True)
    return " ".join(run.stdout.split())


def of_driver(header):
    """The driver's declarations under their own symbols: macros that rename them are left out."""
    # Headers of other projects (GL/gl.h) declare none of the driver's functions.
    wanted = re.sub(r'#include (?![<"]cuda)[^\n]*', "", header.read_text())
    options = ["-DCUDAAPI=", "-D__CUDA_API_VERSION_INTERNAL", "-I", str(header.parent)]
    # What the headers of others would have defined is missing, which the compiler reports.
    return preprocessed(wanted, options, check=False)


def of_runtime(folder, crt, internal):
    """The declarations of cuda_runtime_api.h, of the internal build or the ordinary one."""
    options = ["-D__host__=", "-D__cudart_builtin__=", "-DCUDARTAPI="]
    options += ["-D__CUDA_API_VERSION_INTERNAL"] if internal else []
    options += ["-I", str(folder / "include"), "-I", str(crt)]
    header = (folder / "include/cuda_runtime_api.h").read_text()
    # Default values of parameters are for C++.
    return preprocessed(re.sub(r"(?<!define) __dv\(\w*\)", "", header), options, check=True)


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


def driver(folder):
    """The rows of the driver's table."""
    symbols, forms = collections.defaultdict(list), collections.defaultdict(list)
    for header in ["cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"]:
        for symbol, arguments in DRIVER.findall(of_driver(folder / header)):
            name, version, stream = SUFFIXES.match(symbol).groups()
            form = (int(version or 1), symbol, parameters(arguments))
            if form not in symbols[name, stream]:
                symbols[name, stream].append(form)
    for header in sorted(folder.glob("cuda*Typedefs.h")):
        for name, since, stream, arguments in TYPE.findall(of_driver(header)):
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


def declared(folder, crt):
    """The functions that a release's headers declare: name to result and parameters."""
    found = {}
    for internal in (False, True):
        for returns, name, arguments in RUNTIME.findall(of_runtime(folder, crt, internal)):
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


def runtime(folder12, folder13, crt):
    """The rows of the runtime's table."""
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
    """Prints a table, or compares it with one that was kept."""
    kept = None
    arguments = sys.argv[1:]
    if arguments[-2:-1] == ["--check"]:
        kept = pathlib.Path(arguments.pop())
        arguments.pop()
    which, *folders = arguments
    folders = map(pathlib.Path, folders)
    if which == "driver":
        lines = ["symbol\tname\tsince\tstream\tparameters", *sorted(driver(*folders))]
    else:
        lines = ["major\tsymbol\tform\tstream\treturns\tparameters", *runtime(*folders)]
    text = "\n".join([*lines, ""])
    if kept is None:
        sys.stdout.write(text)
    elif kept.read_text() != text:
        sys.exit(f"{kept} is not what the releases say")


if __name__ == "__main__":
    main()
