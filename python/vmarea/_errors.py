"""Exceptions. Each class corresponds to an exit status of the command line, and has its words."""


class Error(Exception):
    """The work could not be done; the message is the one that the command line prints."""

    status = 1


class UsageError(Error, ValueError):
    """Wrong arguments."""

    status = 2


class NothingToDo(Error):
    """There is nothing to do: a trace without events, a process without mappings."""

    status = 4


class PermissionMissing(Error, PermissionError):
    """A permission is missing; the message names it."""

    status = 5
