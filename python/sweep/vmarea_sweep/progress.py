"""The progress of a sweep, on standard error: one line that changes on a terminal, a line every 10 seconds elsewhere."""

import sys
import time


class Progress:
    """Counts traces and says how far the sweep is."""

    def __init__(self, traces, total, quiet=False):
        self.left, self.total = traces, total
        self.done = self.errors = 0
        self.begun = self.said = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.quiet = quiet

    def add(self, traces, errors):
        self.done += traces
        self.errors += errors
        now = time.monotonic()
        if not self.quiet and now - self.said >= (0.2 if self.terminal else 10):
            self.said = now
            self.say(now)

    def say(self, now):
        rate = self.done / max(now - self.begun, 1e-3)
        skipped = self.total - self.left
        errors = f", {self.errors:,} with errors" if self.errors else ""
        left = duration((self.left - self.done) / rate) if rate else "?"
        line = f"{skipped + self.done:,} of {self.total:,} traces{errors}, {rate:,.1f}/s, {left} left"
        print(f"\r\x1b[K{line}" if self.terminal else line, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def end(self):
        """Removes the line from the terminal."""
        if self.terminal and not self.quiet:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def duration(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
