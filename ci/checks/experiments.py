"""Writes docs/experiments: the text of each experiment, and the list of claims in docs/experiments.md.

usage: ci/run experiments -- LAB [ARGUMENT...] -- NAME...
Runs `LAB experiment NAME ARGUMENT...` for each name; LAB is the path of vmarea-lab. No result there is written by hand.
"""

import json
import pathlib
import subprocess
import sys

DOCS = pathlib.Path("docs")
FOLDER = DOCS / "experiments"
BEGIN, END = "<!-- claims: written by ci/run experiments -->", "<!-- end of claims -->"
WORDS = {"holds": "holds", "does_not_hold": "does not hold", "undecided": "undecided", "withdrawn": "withdrawn"}


def experiment(lab, arguments, name):
    """Runs one experiment, and stores its text and its JSON."""
    target = FOLDER / f"{name}.json"
    command = [lab, "experiment", name, *arguments, f"--json={target}"]
    went = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if went.returncode not in (0, 6):
        sys.exit(f"experiments: {name} ended with {went.returncode}")
    text = "\n".join(line.rstrip() for line in went.stdout.splitlines())
    (FOLDER / f"{name}.txt").write_text(text + "\n")


def claims():
    """Returns one table of claims per experiment, from the stored JSON."""
    for path in sorted(FOLDER.glob("*.json")):
        document = json.loads(path.read_text())
        header = document["header"]
        for report in document["experiments"]:
            name = report["name"]
            yield f"### {name}\n\n{report['paper']}. `{header['command']}` on {header['machine']}, {header['kernel']}; "
            yield f"tables in [{name}.txt](experiments/{name}.txt).\n\n"
            yield "| claim | paper | ours | refuted by | decision |\n|---|---|---|---|---|\n"
            for claim in report["claims"]:
                refuter = claim.get("refuted_by") or "–"
                cells = [claim["text"], claim["paper"], claim["ours"], refuter, WORDS[claim["decision"]]]
                yield f"| {' | '.join(cells)} |\n"
            for missing in report["missing"]:
                yield f"\nLeft out: {missing}.\n"
            yield "\n"


def main():
    split = sys.argv.index("--")
    lab, *arguments = sys.argv[1:split]
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[split + 1 :]:
        experiment(lab, arguments, name)
    page = DOCS / "experiments.md"
    head, rest = page.read_text().split(BEGIN)
    tail = rest.split(END)[1]
    page.write_text(f"{head}{BEGIN}\n\n{''.join(claims())}{END}{tail}")


main()
