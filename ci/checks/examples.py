"""Runs the shell examples of README.md and docs, and compares their output.

An example is a block ```console whose lines that begin with `$ ` are commands of one shell; what a command prints
follows it. The line before the block says how the output is compared:

    <!-- example: exact -->        as it is
    <!-- example: form -->         every word, but no number and not what changes from run to run
    <!-- example: form, root -->   only as root on a kernel that describes itself (BTF): others see less
    <!-- example: not run: WHY --> not at all

A command that ends with `&` runs until the end of the example; the next command starts when it has printed a line.

usage: ci/run examples -- [--renew] [PAGE...]
--renew writes the output into the pages. VMAREA=path/of/vmarea takes that binary instead of building one.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import prepare

TOP = prepare.ROOT
BLOCK = re.compile(r"(?:^<!-- example: ([^\n]*) -->\n)?^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
KINDS = {"exact", "form", "form, root"}
SECONDS = 120
START = """
started() { until [[ -s $1 ]]; do sleep 0.05; done; cat "$1"; }
"""


def commands(block):
    """Returns the commands of an example, each with the output that the page shows."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif not found:
            sys.exit(f"examples: a block begins with `{line}` instead of a command")
        elif not found[-1][1] and found[-1][0].endswith("\\"):
            found[-1] = (found[-1][0] + "\n" + line, [])
        else:
            found[-1][1].append(line)
    return [(command, "\n".join(lines)) for command, lines in found]


def script(found):
    """Returns a script that runs the commands, with a line before the output of each."""
    text = START
    for number, (command, _) in enumerate(found):
        text += f"printf '\\n%s\\n' '---- {number}'\n"
        if command.endswith("&"):
            text += f"{command[:-1]} >$ROOM/{number} 2>&1 & started $ROOM/{number}\n"
        else:
            text += f"{command}\n"
    return text + "printf '\\n%s\\n' '---- end'\n"


def outputs(found, vmarea):
    """Runs an example; returns what each command printed."""
    with tempfile.TemporaryDirectory() as room:
        os.symlink(pathlib.Path(vmarea).resolve(), f"{room}/vmarea")
        environment = os.environ | {
            "PATH": f"{room}:{os.environ['PATH']}",
            "ROOM": room,
            "NO_COLOR": "1",
            "LC_ALL": "C.UTF-8",
        }
        shell = subprocess.Popen(
            ["bash", "-c", script(found)],
            cwd=TOP,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        lines = []
        try:
            # A background command keeps the pipe open, so the end is a line.
            signal.alarm(SECONDS)
            for line in shell.stdout:
                lines.append(line)
                if line == "---- end\n":
                    break
        finally:
            signal.alarm(0)
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    parts = re.split(r"\n---- (?:\d+|end)\n", "\n" + "".join(lines))
    return [part.rstrip() for part in parts[1:-1]]


def form(text):
    """The lines without their numbers, and without what changes from run to run: examples in parentheses, the
    order of reasons that are equally frequent, the widths of columns."""
    text = re.sub(r"less than |about |\(.*?\)", "", text)
    text = re.sub(r"\b[0-9a-f]*\d[\d,.a-f]*( (ms|s|µs|KiB|MiB|GiB))?\b", "N", text)
    return sorted(re.sub(r"[ ─]+", " ", line).strip() for line in text.splitlines())


def can_run(kind):
    """True if this machine shows what the example needs."""
    return "root" not in kind or (os.geteuid() == 0 and pathlib.Path("/sys/kernel/btf/vmlinux").exists())


class Examples:
    """The examples of all pages."""

    def __init__(self, vmarea, renew):
        self.vmarea, self.renew = vmarea, renew
        self.counts = {"equal": 0, "not run": 0, "skipped without root": 0}
        self.wrong = []

    def replace(self, page, match):
        """Runs one example; returns its block, with new output if that is wanted."""
        kind, block = match[1], match[2]
        if kind and kind.startswith("not run: "):
            self.counts["not run"] += 1
            return match[0]
        if kind not in KINDS:
            sys.exit(f"examples: {page}: a console block needs a line before it that says how it is tested")
        if not can_run(kind):
            self.counts["skipped without root"] += 1
            return match[0]
        found = commands(block)
        printed = outputs(found, self.vmarea)
        if len(printed) != len(found):
            sys.exit(f"examples: {page}: `{found[len(printed) - 1][0]}` ends the shell or does not end: {printed}")
        new = ""
        for (command, shown), now in zip(found, printed):
            same = now == shown.rstrip() if kind == "exact" else form(now) == form(shown)
            if not same:
                self.wrong.append(f"{page}: $ {command}\nprints now:\n{now}\n")
            now = shown if same else now
            new += f"$ {command}\n" + (f"{now}\n" if now else "")
        self.counts["equal"] += 1
        return match[0].replace(block, new) if self.renew else match[0]

    def page(self, path):
        """Runs the examples of a page."""
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(TOP)
        new = BLOCK.sub(lambda match: self.replace(name, match), text)
        if new != text:
            path.write_text(new, encoding="utf-8")


def late(_signal, _frame):
    """Ends an example that takes too long."""
    raise TimeoutError(f"an example takes longer than {SECONDS} s")


def main():
    """Runs all examples, or those of the given pages."""
    signal.signal(signal.SIGALRM, late)
    arguments = [argument for argument in sys.argv[1:] if argument != "--renew"]
    examples = Examples(prepare.program(), "--renew" in sys.argv)
    pages = [pathlib.Path(page).resolve() for page in arguments]
    for path in pages or [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]:
        examples.page(path)
    if examples.wrong and not examples.renew:
        sys.exit("\n".join(examples.wrong) + "examples: ci/run examples --renew, and read the difference")
    print("examples: ok,", ", ".join(f"{count} {what}" for what, count in examples.counts.items()))


if __name__ == "__main__":
    main()
