"""Healthy processes, by kind."""

from . import compilers, desktop, interpreters, servers
from .table import HEALTHY

__all__ = ["HEALTHY", "compilers", "desktop", "interpreters", "servers"]
