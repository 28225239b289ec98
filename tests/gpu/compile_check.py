#!/usr/bin/env python3
"""Compiles every GPU kernel source as the build does, for all its architectures and one element type, where there is an nvcc:
CMake's, the environment's, or that of build/cuda-toolkit (scripts/install-deps.sh test). Needs no GPU and no driver.
Then adds up what the images of all types would take beside the library without them, which is to stay below its budget.

Usage: compile_check.py SOURCE_FOLDER HOST_COMPILER LIBRARY [NVCC]. Exit 0: all compile and fit; 1: not so; 77: there is no nvcc.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIP = 77
ELEMENT = "kBfloat16"  # converted, folded in fp32 and rounded: the most code of all types
LIMIT = 900  # seconds a source, for a machine under load; each takes 4 to 45
BUDGET = 20 << 20  # bytes of libnccl.so.2 with kernels, as abi.size has it of a library that was built so


def find_nvcc(source, given):
    """The first that runs. A toolkit that is installed goes before the wheels."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    candidates = [given, os.environ.get("CUDACXX"), "nvcc", *[f"{home}/bin/nvcc" for home in homes if home]]
    candidates += sorted(source.glob("build/cuda-toolkit/nvidia/*/bin/nvcc"))
    for candidate in candidates:
        found = shutil.which(str(candidate)) if candidate else None
        if found is None:
            continue
        version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
        release = re.search(r"release (\d+)\.", version.stdout)
        if version.returncode == 0 and release and int(release[1]) >= 13:
            return found, version.stdout.strip().splitlines()[-1]
    return None, None


def stripped_size(library):
    with tempfile.TemporaryDirectory() as scratch:
        stripped = pathlib.Path(scratch, "library")
        subprocess.run(["strip", "-o", stripped, library], check=True)
        return stripped.stat().st_size


def build_rules(source):
    """Of cmake/TuttiGpuKernels.cmake: architectures, the last one also as PTX, options for the size, and how many types there are."""
    text = (source / "cmake/TuttiGpuKernels.cmake").read_text()
    architectures = re.search(r'TUTTI_GPU_ARCHITECTURES "([\d;]+)"', text)[1].split(";")
    compression = re.search(r"(-Xfatbin=\S+ --compress-mode=\w+)", text)[1].split()
    types = re.search(r"set\(gpu_types ([\w ]+)\)", text)[1].split()
    generated = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in architectures]
    generated.append(f"-gencode=arch=compute_{architectures[-1]},code=compute_{architectures[-1]}")
    return generated + compression, len(types)


def compile_one(nvcc, host, source, options, kernel, element):
    """The image's bytes, and what the compiler said when something is wrong."""
    folder = source / "src/kernels/cuda"
    with tempfile.TemporaryDirectory() as scratch:
        image = pathlib.Path(scratch, "image.fatbin")
        command = [nvcc, "-ccbin", host, "-std=c++20", "-O3", "--fatbin", "--expt-relaxed-constexpr", f"-I{source / 'src'}",
                   *options, str(folder / kernel), "-o", str(image)]
        if element:
            command.append(f"-DTUTTI_ELEMENT={ELEMENT}")
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return 0, f"not done after {LIMIT} s"
        if result.returncode == 0 and image.exists() and image.stat().st_size > 0:
            return image.stat().st_size, None
        return 0, (result.stdout + result.stderr).strip() or f"exit code {result.returncode}, and no image"


def jobs(source):
    """(source, whether for an element type), longest first: each once as it is, and for a type where it takes one."""
    found = []
    for path in sorted((source / "src/kernels/cuda").glob("*.cu")):
        text = path.read_text()
        takes = "TUTTI_ELEMENT" in text
        if takes:
            found.append((path.name, True))
        if not takes or "ifdef TUTTI_ELEMENT" in text or "defined(TUTTI_ELEMENT)" in text:
            found.append((path.name, False))
    return found


def main():
    source, host, library = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], pathlib.Path(sys.argv[3])
    nvcc, version = find_nvcc(source, sys.argv[4] if len(sys.argv) > 4 else "")
    if nvcc is None:
        print("skipped: no nvcc of CUDA 13 or later is installed, and scripts/install-deps.sh test got none")
        return SKIP
    print(f"{nvcc}: {version}")
    wanted = jobs(source)
    if not wanted:
        print("there are no kernels to compile")
        return 1
    options, types = build_rules(source)
    print("as the build has it:", *options)
    problems = 0
    total = stripped_size(library)
    with concurrent.futures.ThreadPoolExecutor(max(1, min(2, len(os.sched_getaffinity(0))))) as pool:
        results = [(job, pool.submit(compile_one, nvcc, host, source, options, *job)) for job in wanted]
        for (kernel, element), result in results:
            name = f"{kernel} for {ELEMENT}" if element else kernel
            size, said = result.result()
            total += size * (types if element else 1)
            print(f"{name}: {f'{size >> 10} KiB' if said is None else 'does not compile'}", flush=True)
            if said is not None:
                print(said)
                problems += 1
    print(f"the library with the kernels of {types} types takes about {total / 2**20:.1f} MiB of {BUDGET >> 20}")
    return 1 if problems or total > BUDGET else 0


if __name__ == "__main__":
    sys.exit(main())
