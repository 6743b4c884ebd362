"""The key, and what a report of `vmarea explain` is worth against it."""

import csv
import dataclasses
import hashlib
import pathlib

FOLDER = pathlib.Path(__file__).parent
TOLERANCE = 0.05
NONE = "-"


def table(name):
    """Returns the rows of a file of this folder."""
    with open(FOLDER / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@dataclasses.dataclass
class Case:
    """A row of the key. `mappings` is the number that the cause accounts for, or None."""

    name: str
    kind: str
    accepted: list
    mappings: int | None = None

    @property
    def held(self):
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 3 == 0


def cases():
    """Returns the cases of the key; fails if one accepts what the vocabulary does not have."""
    words = {row["cause"] for row in table("vocabulary.tsv")}
    found = [Case(row["case"], row["kind"], row["accepted"].split("|"), int(row["mappings"]) if row["mappings"] else None)
             for row in table("key.tsv")]
    for case in found:
        if unknown := set(case.accepted) - words - {NONE}:
            raise SystemExit(f"diagnosis: {case.name} accepts {', '.join(unknown)}, which is not in vocabulary.tsv")
    if len({case.name for case in found}) != len(found):
        raise SystemExit("diagnosis: a case is twice in key.tsv")
    return found


@dataclasses.dataclass
class Verdict:
    """What a report told about a case: `right`, `none` told, or `wrong`."""

    case: Case
    word: str
    told: str


def judge(case, report):
    """Judges a report, the JSON of `explain`."""
    words = {row["cause"] for row in table("vocabulary.tsv")}
    names = {row["vmarea"]: row["cause"] for row in table("names.tsv")}
    causes = report.get("causes") or []
    if not causes:
        return Verdict(case, "right" if NONE in case.accepted else "none", NONE)
    name, mappings = causes[0]["name"], causes[0]["mappings"]
    cause = names.get(name, name)
    told = f"{name} {mappings}"
    if cause not in words:
        return Verdict(case, "wrong", f"{told} (unknown)")
    if cause not in case.accepted:
        return Verdict(case, "wrong", told)
    if case.mappings and abs(mappings - case.mappings) > TOLERANCE * case.mappings:
        return Verdict(case, "wrong", f"{told} (of {case.mappings})")
    return Verdict(case, "right", told)
