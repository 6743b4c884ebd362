"""Checks that each public item of the published crates has an example or a reason why not, from rustdoc's JSON.

An item has an example if one of these examples names it, in code rather than in a comment or a string:
1. an example in its own documentation, in that of its type or trait, of a module that contains it, or of its crate;
2. for a method of `Space`, an example of the module whose file defines the method;
3. an example of another item of the crate, which for a method must also name the method's type. Every example of `vmarea`
   names `Space`, so this does not count for the methods of `Space`.

Other items need a reason in ci/api-reasons.toml, by name or by one of these kinds:
- `getter`: a method that takes only `&self`, and whose documentation begins with "Returns", "True if" or "Checks";
- `data`: a type without methods other than getters, `new` and `default`;
- `constant`, `static`, `type_alias`.
Fields and variants belong to their type. The functions of `bitflags!` and the methods of foreign traits are not counted.

usage: ci/api.py FOLDER [--list], where FOLDER contains rustdoc's JSON; --list prints how each item is covered
"""

import collections
import fnmatch
import json
import pathlib
import re
import sys
import tomllib

TOP = pathlib.Path(__file__).resolve().parent.parent
CRATES = ["vmarea_sync", "vmarea_range_tree", "vmarea_merge", "vmarea"]
# The version of rustdoc's JSON that this script reads.
VERSION = 57
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NO_RUST = re.compile(r"\b(text|sh|toml|json|console|c|ignore|sql)\b")
NO_CODE = re.compile(r'//[^\n]*|"(?:[^"\\]|\\.)*"')
GETTER = re.compile(r"(Returns|True if|Checks)\b")

# What the macro `bitflags!` adds to each type.
BITFLAGS = set(
    "empty all bits from_bits from_bits_truncate from_bits_retain from_name is_empty is_all intersects contains insert "
    "remove toggle set intersection union difference symmetric_difference complement iter iter_names known_bits "
    "unknown_bits truncate clear contains_unknown_bits".split()
)

# `near`: the examples that need not name the type of a method.
Item = collections.namedtuple("Item", "path kind type near")


def examples(item):
    """Returns the code of the Rust examples in the documentation of an item."""
    blocks = FENCE.findall(item["docs"] or "")
    return [NO_CODE.sub("", body) for language, body in blocks if not NO_RUST.search(language)]


def names(example, name):
    """True if an example contains the name."""
    return re.search(rf"\b{re.escape(name)}\b", example) is not None


class Crate:
    """The public items of one crate."""

    def __init__(self, name, document):
        self.index = document["index"]
        self.items, self.seen = [], set()
        self.everywhere = [example for item in self.index.values() for example in examples(item)]
        modules = [item for item in self.index.values() if "module" in item["inner"] and item["span"]]
        self.files = {item["span"]["filename"]: examples(item) for item in modules}
        self.module(document["root"], [name], [])

    def get(self, number):
        return self.index.get(str(number))

    def module(self, number, path, above):
        """Adds the items of a module; `above` has the examples of the modules that contain it."""
        if number in self.seen:
            return
        self.seen.add(number)
        module = self.get(number)
        near = above + examples(module)
        # What the prelude exports has another place as well.
        children = sorted(
            module["inner"]["module"]["items"],
            key=lambda child: (self.get(child) or {}).get("name") == "prelude",
        )
        for child in children:
            self.child(child, path, near)

    def child(self, number, path, above):
        """Adds an item of a module, with what belongs to it."""
        item = self.get(number)
        if item is None or number in self.seen:
            return
        (kind, inner), *_ = item["inner"].items()
        if kind == "use":
            if inner["id"] is not None and not inner["is_glob"]:
                self.child(inner["id"], path, above)
            return
        path = path + [item["name"]]
        if kind == "module":
            self.module(number, path, above)
            return
        self.seen.add(number)
        if kind in ("struct", "enum", "union", "trait"):
            self.type(item, kind, inner, path, above)
        elif kind in ("function", "constant", "static", "macro", "type_alias"):
            self.items.append(Item(path, kind, None, above + examples(item)))

    def type(self, item, kind, inner, path, above):
        """Adds a type or a trait, and its methods."""
        own = examples(item)
        methods = list(self.methods(inner, kind))
        if any(method["name"] == "from_bits_retain" for method in methods):
            methods = [method for method in methods if method["name"] not in BITFLAGS]
        kinds = {method["name"]: "getter" if is_getter(method) else "method" for method in methods}
        for method in methods:
            name = method["name"]
            near = own + examples(method)
            if item["name"] == "Space":
                near += self.files.get(method["span"]["filename"], [])
            self.items.append(Item(path + [name], kinds[name], item["name"], near))
        others = [name for name, what in kinds.items() if what == "method" and name not in ("new", "default")]
        is_data = kind != "trait" and not others
        self.items.append(Item(path, "data" if is_data else kind, None, above + own))

    def methods(self, inner, kind):
        """Yields the public methods of a type or a trait."""
        if kind == "trait":
            children = inner["items"]
        else:
            blocks = [self.get(block)["inner"]["impl"] for block in inner["impls"] if self.get(block)]
            children = [child for block in blocks if block["trait"] is None for child in block["items"]]
        for member in map(self.get, children):
            if member and "function" in member["inner"] and member["visibility"] in ("public", "default"):
                yield member

    def has_example(self, item):
        """True if an example names the item."""
        name = item.path[-1]
        if any(names(example, name) for example in item.near):
            return True
        both = [name, item.type] if item.type else [name]
        return item.type != "Space" and any(all(names(example, n) for n in both) for example in self.everywhere)


def is_getter(method):
    """True for a method that takes only `&self`, and says in its first line what it returns or checks."""
    inputs = method["inner"]["function"]["sig"]["inputs"]
    reads = [name for name, _ in inputs] == ["self"] and not inputs[0][1].get("borrowed_ref", {}).get("is_mutable", False)
    return reads and GETTER.match(method["docs"] or "") is not None


def reason(item, reasons):
    """Returns the text of the first reason why an item needs no example, if there is one."""
    path = "::".join(item.path)
    for entry in reasons:
        if item.kind in entry.get("kinds", []):
            return entry["why"]
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in entry.get("items", [])):
            return entry["why"]
    return None


def main():
    """Prints the counts of each crate; fails if an item has neither example nor reason, or a reason has no item."""
    folder, lists = pathlib.Path(sys.argv[1]), "--list" in sys.argv
    with open(TOP / "ci/api-reasons.toml", "rb") as file:
        reasons = tomllib.load(file)["reason"]
    used, missing = collections.Counter(), []
    for name in CRATES:
        document = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        if document["format_version"] != VERSION:
            print(f"api: skipped: rustdoc writes version {document['format_version']} of its JSON, not {VERSION}")
            return
        crate = Crate(name, document)
        why = {item.path[0] + str(i): None for i, item in enumerate(())}
        why = [(item, "" if crate.has_example(item) else reason(item, reasons)) for item in crate.items]
        shown = sum(text == "" for _, text in why)
        used.update(text for _, text in why if text)
        missing += [item for item, text in why if text is None]
        excused = sum(bool(text) for _, text in why)
        print(f"api: {name}: {len(why)} items, {shown} with an example, {excused} with a reason why not")
        if lists:
            for item, text in why:
                print(f"api:   {'::'.join(item.path)} ({item.kind}): {'an example' if text == '' else text}")
    for text, count in used.most_common():
        print(f"api: {count:4}  {text}")
    for item in missing:
        print(f"api: {'::'.join(item.path)} ({item.kind}) has neither an example nor a reason", file=sys.stderr)
    unused = {entry["why"] for entry in reasons} - set(used)
    for text in sorted(unused):
        print(f"api: no item needs the reason: {text}", file=sys.stderr)
    if missing or unused:
        sys.exit(1)
    print("api: ok")


if __name__ == "__main__":
    main()
