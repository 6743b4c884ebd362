"""The kills of hazards.py: what the bully says of each, and a table of all.

A kill stands in the results as `MODE:AIM:BEFORE:AFTER`. AIM is the step of the agent that was waited for, or `random`.
BEFORE and AFTER are what the agent's own record showed immediately before the first and after the last SIGKILL:
`none` without an agent, `born` before it may begin, or its step, with a plus sign while pages of the piece are out.
"""

import collections
import signal

KILLS = ["kill-merge", "kill-tracer", "kill-both"]
MOVED = "between"
STEPS = {
    "none": "no agent",
    "born": "0, before it may begin",
    "0": "0, prepares",
    "1": "1, watched, pages leave",
    "2": "2, all pages are out",
    "3": "3, pages return",
    "4": "4, all pages are back",
    "5": "5, the watch has ended",
    MOVED: "another before and after",
}


def kill_of(output, status, said):
    """Returns the kill that the bully reports, in a list; an empty one if the merge had already ended.

    `status` and `said` are the exit status and the output of the merge."""
    words = output.split()
    if len(words) != 5 or words[0] not in KILLS:
        return []
    mode, killed, *rest = words
    shows = status == 1 and "was killed" in said if mode == "kill-tracer" else status == -signal.SIGKILL
    return [":".join([mode, *rest])] if shows and int(killed) >= (2 if mode == "kill-both" else 1) else []


def tell(lines, failed, targets):
    """Prints a table of kills, by mode and by the step in which the agent was. `failed` is the number of targets, of
    `targets`, in which something was damaged."""
    counts, out, at_random = collections.Counter(), collections.Counter(), collections.Counter()
    for line in lines:
        mode, aim, before, after = line.split(":")
        agrees = before.rstrip("+") == after.rstrip("+")
        counts[mode, before.rstrip("+") if agrees else MOVED] += 1
        out[mode] += agrees and before.endswith("+") and after.endswith("+")
        at_random[mode] += aim == "random"

    def row(name, numbers):
        print(f"{name:32}" + "".join(f"{number:12}" for number in [*numbers, sum(numbers)]))

    print(f"\n{'step of the agent at the kill':32}" + "".join(f"{mode:>12}" for mode in [*KILLS, "all"]))
    for step, name in STEPS.items():
        row(name, [counts[mode, step] for mode in KILLS])
    row("all", [sum(counts[mode, step] for step in STEPS) for mode in KILLS])
    row("of these with pages out", [out[mode] for mode in KILLS])
    row("of these not at a chosen step", [at_random[mode] for mode in KILLS])
    print(f"damaged: {failed} of {targets} targets")
