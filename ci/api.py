"""Counts the public items of the published crates that have an example, and lists those with neither example nor reason.

An item has an example if an example uses it by its name: anywhere in the documentation of its crate, in the crate's
README, in its `examples`, or in a chapter of the book. For a method, an example that is neither its own nor that of its
type must name the type as well. Fields and variants belong to their type; the functions that the macro `bitflags!` makes,
and methods of traits that come from elsewhere, are not counted. ci/api-reasons.toml says why other items need none, by
kind or by name.

usage: ci/api.py FOLDER [--list], where FOLDER contains rustdoc's JSON
"""

import collections
import fnmatch
import json
import pathlib
import re
import sys
import tomllib

TOP = pathlib.Path(__file__).resolve().parent.parent
CRATES = {
    "vmarea_sync": "crates/sync",
    "vmarea_range_tree": "crates/range-tree",
    "vmarea_merge": "crates/merge",
    "vmarea": "crates/vmarea",
}
# The version of rustdoc's JSON that this script reads.
VERSION = 57
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NO_RUST = re.compile(r"\b(text|sh|toml|json|console|c|ignore|sql)\b")

# What the macro `bitflags!` adds to each type.
BITFLAGS = set(
    "empty all bits from_bits from_bits_truncate from_bits_retain from_name is_empty is_all intersects contains insert "
    "remove toggle set intersection union difference symmetric_difference complement iter iter_names known_bits "
    "unknown_bits truncate clear contains_unknown_bits".split()
)

Item = collections.namedtuple("Item", "path name kind type near")


def rust(text):
    """Returns the Rust examples in Markdown."""
    blocks = FENCE.findall(text or "")
    return [body for language, body in blocks if not NO_RUST.search(language)]


def uses(example, name):
    """True if an example contains the name."""
    return re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", example) is not None


class Crate:
    """The public items of one crate."""

    def __init__(self, name, document, elsewhere):
        self.name, self.index = name, document["index"]
        self.elsewhere = elsewhere
        self.items, self.seen = [], set()
        self.everywhere = [example for item in self.index.values() for example in rust(item["docs"])]
        self.module(document["root"], [name])

    def get(self, number):
        return self.index.get(str(number))

    def add(self, path, item, kind, owner, near):
        self.items.append(Item("::".join(path), path[-1], kind, owner, rust(item["docs"]) + near))

    def module(self, number, path):
        """Adds the items of a module."""
        module = self.get(number)
        if number in self.seen:
            return
        self.seen.add(number)
        children = module["inner"]["module"]["items"]
        # What the prelude exports has another place as well.
        for child in sorted(children, key=lambda child: (self.get(child) or {}).get("name") == "prelude"):
            self.child(child, path)

    def child(self, number, path):
        """Adds an item of a module, with what belongs to it."""
        item = self.get(number)
        if item is None or number in self.seen:
            return
        (kind, inner), *_ = item["inner"].items()
        if kind == "use":
            if inner["id"] is not None and not inner["is_glob"]:
                self.child(inner["id"], path)
            return
        path = path + [item["name"] or "?"]
        if kind == "module":
            self.module(number, path)
            return
        self.seen.add(number)
        if kind in ("struct", "enum", "union", "trait"):
            self.type(item, kind, inner, path)
        elif kind in ("function", "constant", "static", "macro", "type_alias"):
            self.add(path, item, kind, None, [])

    def type(self, item, kind, inner, path):
        """Adds a type or a trait, and its methods."""
        near = rust(item["docs"])
        if kind == "trait":
            members = [self.get(child) for child in inner["items"]]
        else:
            blocks = [self.get(block)["inner"]["impl"] for block in inner["impls"] if self.get(block)]
            members = [self.get(child) for block in blocks if block["trait"] is None for child in block["items"]]
            members = [member for member in members if member and member["visibility"] == "public"]
        methods = [member for member in members if member and "function" in member["inner"]]
        names = {method["name"] for method in methods}
        if "from_bits_retain" in names:
            methods = [method for method in methods if method["name"] not in BITFLAGS]
        for method in methods:
            signature = method["inner"]["function"]["sig"]
            is_getter = [name for name, _ in signature["inputs"]] == ["self"] and signature["output"] is not None
            what = "getter" if is_getter else "method"
            self.add(path + [method["name"]], method, what, path[-1], near)
        is_data = kind != "trait" and not any(m["name"] not in ("new", "default") for m in methods)
        self.add(path, item, "data" if is_data else kind, None, [])

    def has_example(self, item):
        """True if an example uses the item."""
        if any(uses(example, item.name) for example in item.near):
            return True
        both = [item.name, item.type] if item.type else [item.name]
        examples = self.everywhere + self.elsewhere
        return any(all(uses(example, name) for name in both) for example in examples)


def elsewhere(folder):
    """Returns the examples of a crate that are not in its documentation, and those of the book."""
    pages = [TOP / folder / "README.md", *sorted((TOP / "docs").glob("*.md"))]
    books = [example for page in pages for example in rust(page.read_text(encoding="utf-8"))]
    programs = [file.read_text(encoding="utf-8") for file in sorted((TOP / folder / "examples").glob("*.rs"))]
    return books + programs


def reason(item, reasons):
    """Returns why an item needs no example, if there is a reason."""
    for entry in reasons:
        if item.kind in entry.get("kinds", []):
            return entry["why"]
        if any(fnmatch.fnmatchcase(item.path, pattern) for pattern in entry.get("items", [])):
            return entry["why"]
    return None


def main():
    """Prints the counts of each crate; fails if an item has neither example nor reason."""
    folder = pathlib.Path(sys.argv[1])
    with open(TOP / "ci/api-reasons.toml", "rb") as file:
        reasons = tomllib.load(file)["reason"]
    used, missing = collections.Counter(), []
    for name, source in CRATES.items():
        document = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        if document["format_version"] != VERSION:
            print(f"api: skipped: rustdoc writes version {document['format_version']} of its JSON, not {VERSION}")
            return
        crate = Crate(name, document, elsewhere(source))
        without = [item for item in crate.items if not crate.has_example(item)]
        why = [(item, reason(item, reasons)) for item in without]
        used.update(text for _, text in why if text)
        lacking = [item for item, text in why if not text]
        missing += lacking
        shown, excused = len(crate.items) - len(without), len(without) - len(lacking)
        print(f"api: {name}: {len(crate.items)} items, {shown} with an example, {excused} with a reason why not")
    for text, count in used.most_common():
        print(f"api: {count:4}  {text}")
    if "--list" in sys.argv or missing:
        for item in missing:
            print(f"api: {item.path} ({item.kind}) has neither an example nor a reason", file=sys.stderr)
    unused = {entry["why"] for entry in reasons} - set(used)
    for text in sorted(unused):
        print(f"api: nothing has the reason: {text}", file=sys.stderr)
    if missing or unused:
        sys.exit(1)
    print("api: ok")


if __name__ == "__main__":
    main()
