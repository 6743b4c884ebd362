"""A run of `vmarea merge` in hazards.py, and the exit statuses and messages that are documented."""

import os
import re
import signal
import subprocess
import time

from hazards_target import SLOWNESS, SOON, Failure, children, die_with_parent, tell_stacks

# Activities and modes with which a merge may be refused, and the messages of these refusals.
REFUSALS = {
    "fork": "shares its memory|does not stop",
    "spawn": "shares its memory|does not stop",
    "share": "shares its memory",
    "limits": "has no room|cannot have the thread",
    "sandbox": "may not use userfaultfd|seccomp filter",
    "userfault": "does not stop",
    "stop": "does not stop",
    "freeze": "does not stop",
    "attach": "is traced by|does not stop|has no permission|no permission to trace",
    "second": "is at work|is traced by",
    "kill-merge": "is at work",
    "kill-tracer": "was killed|is at work",
    "kill-both": "was killed|is at work",
}
ALWAYS = "a pause of .* cannot be kept"
# Messages that are right only if the target has ended, or has executed itself.
ENDED = r"process \d+ has ended|no process|another program"
TIMEOUT = 60 * SLOWNESS


def messages(causes):
    """Returns the messages of refusals that these activities and modes may cause."""
    return [REFUSALS[cause] for cause in causes if cause in REFUSALS]


class Merge:
    """A run of `vmarea merge`."""

    def __init__(self, vmarea, target, options, room, name="merge"):
        self.target = target
        self.options = options
        self.output_path = room / f"{name}.out"
        self.command = [vmarea, "merge", "-p", str(target.pid), *options]
        with open(self.output_path, "wb") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output, preexec_fn=die_with_parent)

    def wait(self):
        """Returns the exit status; kills a merge that hangs."""
        try:
            return self.process.wait(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            ours = [*children(self.process.pid), self.process.pid]
            tell_stacks([*ours, self.target.pid, *children(self.target.pid)])
            for pid in ours:
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
            raise Failure(f"vmarea merge {' '.join(self.options)} hangs") from None

    def output(self):
        return self.output_path.read_text(errors="replace")

    def check(self, status, causes):
        """Raises a failure unless the exit status is one that is documented for these circumstances."""
        output = self.output()
        if status in (0, 4) or (status == 7 and "interrupt" in causes):
            return
        if status in (-signal.SIGKILL, -signal.SIGINT) and {"kill-merge", "kill-both", "interrupt"} & set(causes):
            return
        if status in (1, 5) and re.search("|".join([ALWAYS, *messages(causes)]), output):
            return
        # A target may end in the middle of the merge. The end of its last thread takes a moment.
        until = time.monotonic() + SOON
        while not self.target.has_ended() and time.monotonic() < until:
            time.sleep(0.01)
        has_ended = self.target.has_ended() or "execute" in causes
        if not (has_ended and (self.target.process.returncode or re.search(ENDED, output))):
            raise Failure(f"vmarea merge {' '.join(self.options)} ended with {status}: {output.strip()[:300]}")
