"""The real programs, by what they are made of."""

from . import compiled, runtimes
from .running import PROGRAMS, Room, environment, missing, running

__all__ = ["PROGRAMS", "Room", "environment", "missing", "running", "compiled", "runtimes"]
