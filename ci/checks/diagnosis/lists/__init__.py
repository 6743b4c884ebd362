"""The lists, by kind."""

from . import allocators, devices, files, limits, ordinary, runtimes, stacks
from .layout import CASES, make

__all__ = ["CASES", "make", "allocators", "devices", "files", "limits", "ordinary", "runtimes", "stacks"]
