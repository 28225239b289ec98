"""Compiles csrc/ for the torch that is present, once, and loads it.

torch's C++ interface differs from version to version, so no one binary could serve all. What was compiled stays in
a folder named by everything that it depends on; several ranks that start at once wait for the one that compiles.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

import torch

from .._library import library_path

_HERE = pathlib.Path(__file__).parent.absolute()
_NAME = "_C"
_FLAGS = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-w", "-DNDEBUG",
          "-DTUTTI_WITHOUT_CUDA_HEADERS", f"-DTORCH_EXTENSION_NAME={_NAME}"]


def _sources() -> list[pathlib.Path]:
    return sorted((_HERE / "csrc").glob("*.cc"))


def _headers() -> pathlib.Path:
    """Where nccl.h of this libnccl.so.2 lies."""
    home = library_path().parent.parent
    for candidate in (home / "include", pathlib.Path("/usr/lib/tutti/include")):
        if (candidate / "tutti/host.h").exists():
            return candidate
    raise ImportError(f"no tutti/host.h: looked in {home / 'include'} and /usr/lib/tutti/include")


def _asked_compiler() -> list[str]:
    """CXX with its options. Nothing when unset: what was compiled stays good when the compiler is taken off the machine."""
    return shlex.split(os.environ.get("CXX", ""))


def _folder() -> pathlib.Path:
    """A place for this torch, this Python and these sources."""
    digest = hashlib.sha256()
    for each in (torch.__version__, torch.__file__, sys.version, *_FLAGS, *_asked_compiler()):
        digest.update(each.encode() + b"\0")
    for path in [*_sources(), *sorted((_HERE / "csrc").glob("*.h")), _headers() / "nccl.h", _headers() / "tutti/host.h"]:
        digest.update(path.read_bytes())
    cache = os.environ.get("TUTTI_TORCH_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tutti")
    return pathlib.Path(cache) / f"torch-{torch.__version__}-{digest.hexdigest()[:16]}"


def _command(unit: pathlib.Path, target: pathlib.Path) -> list[str]:
    compiler = _asked_compiler() or [found for found in (shutil.which("c++"), shutil.which("g++")) if found][:1]
    if not compiler:
        raise ImportError("tutti.torch must be compiled once, and there is no C++ compiler: install g++, or set CXX")
    # Not by torch.utils.cpp_extension, which prints what it thinks of the machine's CUDA when it is imported.
    home = pathlib.Path(torch.__file__).parent
    includes = [_headers(), home / "include", home / "include/torch/csrc/api/include", sysconfig.get_paths()["include"]]
    libraries = [path for path in (home / "lib",) if path.is_dir()]
    return [*compiler, *_FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
            f"-I{_HERE / 'csrc'}", *(argument for path in includes for argument in ("-isystem", str(path))),
            str(unit), "-o", str(target), *(f"-L{path}" for path in libraries),
            *(f"-Wl,-rpath,{path}" for path in libraries), "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", "-ldl"]


def _compile(target: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        # As one unit: torch's headers, which are most of the work, are read once.
        unit = pathlib.Path(work) / "unit.cc"
        unit.write_text("".join(f'#include "{path.name}"\n' for path in _sources()))
        made = pathlib.Path(work) / target.name
        command = _command(unit, made)
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise ImportError(f"tutti.torch could not be compiled for torch {torch.__version__}:\n"
                              f"{' '.join(command)}\n{result.stderr[-4000:]}")
        os.replace(made, target)


def module_path() -> pathlib.Path:
    """The compiled module; compiles it if it is not there."""
    folder = _folder()
    target = folder / f"{_NAME}.so"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            print(f"tutti.torch: compiling for torch {torch.__version__}, once, into {folder}", file=sys.stderr)
            _compile(target)
    return target


def load() -> Any:
    path = module_path()
    loader = importlib.machinery.ExtensionFileLoader(_NAME, os.fspath(path))
    specification = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    module = importlib.util.module_from_spec(specification)
    loader.exec_module(module)
    return module
