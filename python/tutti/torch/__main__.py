"""python -m tutti.torch: compiles the backend for the torch of this Python, if that was not done yet."""

from ._build import module_path

print(module_path())
