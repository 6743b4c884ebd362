"""The healthy processes: about none of them may a cause be told."""

import functools

from programs.running import program

HEALTHY = {}
healthy = functools.partial(program, into=HEALTHY)
