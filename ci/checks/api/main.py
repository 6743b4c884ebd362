"""Checks that each public item of the published crates has an example or a reason why not, from rustdoc's JSON.

An item has an example if its documentation has one, or if one of these examples names it, in code rather than in a
comment or a string:
1. for a method, an example of its type or trait; for another item, one of a module that contains it, or of its crate;
2. for a method of `Space`, an example of the module whose file defines the method;
3. an example of an item to which its documentation, or that of its type, links with the words "has an example" (if the
   item is a type itself, that example need not name it);
4. an example of another item of the crate, which for a method must also name the method's type. This does not count for
   the methods of `Space`, which every example of `vmarea` names, and of traits, whose methods have short names.

Other items need a reason in ci/checks/api/reasons.toml, by name or by one of these kinds:
- `getter`: a method that takes nothing but `self` or `&self`, and whose documentation begins with "Returns", "True if"
  or "Checks";
- `provided`: a method of a trait with a default;
- `data`: a type without methods other than getters, `new` and `default`;
- `constant`, `type_alias` and other kinds of rustdoc.
Fields and variants belong to their type. What `bitflags!` makes, and methods of foreign traits, are not counted.
Rustdoc's JSON is unstable: this is skipped with a note if the version that this rustdoc writes is not known here. Before
it, the documentation must build without warnings. ci/run test runs the examples.

usage: ci/run api            counts by crate, and the items that have neither
       ci/run api --list     also how each item is covered
"""

import collections
import fnmatch
import json
import os
import re
import subprocess
import sys
import tomllib

import prepare

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

# `own`: true if its documentation has an example. `near`: the examples of which one has to name it. `far`: true if
# another example of the crate may.
Item = collections.namedtuple("Item", "path kind type own near far")


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
            self.items.append(Item(path, kind, None, bool(examples(item)), above + self.pointed_at(item), True))

    def type(self, item, kind, inner, path, above):
        """Adds a type or a trait, and its methods."""
        shared = examples(item) + self.pointed_at(item)
        methods = list(self.methods(inner, kind))
        if any(method["name"] == "from_bits_retain" for method in methods):
            methods = [method for method in methods if method["name"] not in BITFLAGS]
        kinds = {method["name"]: kind_of(method, kind) for method in methods}
        far = kind != "trait" and item["name"] != "Space"
        for method in methods:
            name = method["name"]
            near = shared + self.pointed_at(method)
            if item["name"] == "Space":
                near += self.files.get(method["span"]["filename"], [])
            self.items.append(Item(path + [name], kinds[name], item["name"], bool(examples(method)), near, far))
        others = [name for name, what in kinds.items() if what == "method" and name not in ("new", "default")]
        is_data = kind != "trait" and not others
        self.items.append(Item(path, "data" if is_data else kind, None, bool(shared), above, True))

    def pointed_at(self, item):
        """Returns the examples of the items that have one for this item, as its documentation says."""
        if "has an example" not in " ".join((item["docs"] or "").split()):
            return []
        linked = filter(None, map(self.get, item["links"].values()))
        return [example for other in linked for example in examples(other)]

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
        """True if the item has an example; see the rules above."""
        name = item.path[-1]
        if item.own or any(names(example, name) for example in item.near):
            return True
        both = [name, item.type] if item.type else [name]
        return item.far and any(all(names(example, n) for n in both) for example in self.everywhere)


def kind_of(method, owner):
    """Returns the kind of a method."""
    function = method["inner"]["function"]
    if owner == "trait" and function["has_body"]:
        return "provided"
    inputs = dict(function["sig"]["inputs"])
    takes_self = list(inputs) == ["self"] and not inputs["self"].get("borrowed_ref", {}).get("is_mutable")
    return "getter" if takes_self and GETTER.match(method["docs"] or "") else "method"


def reason(item, reasons):
    """Returns the first kind or pattern that says why an item needs no example, with the text; else `None` twice."""
    path = "::".join(item.path)
    for entry in reasons:
        if item.kind in entry.get("kinds", []):
            return item.kind, entry["why"]
        for pattern in entry.get("items", []):
            if fnmatch.fnmatchcase(path, pattern):
                return pattern, entry["why"]
    return None, None


def document(folder, flags, **environment):
    """Builds the documentation of the crates in a folder."""
    packages = [f"--package={name.replace('_', '-')}" for name in CRATES]
    command = ["cargo", "doc", "--quiet", "--locked", "--no-deps", "--target-dir", folder, *packages]
    if status := subprocess.run(command, env=os.environ | environment | {"RUSTDOCFLAGS": flags}).returncode:
        sys.exit(status)


def main():
    """Prints the counts of each crate; fails if an item has neither example nor reason, or a reason has no item."""
    folder, lists = prepare.TARGET / "api", "--list" in sys.argv
    # Unlike in ci/run lint, no link may lead to a private item: readers of docs.rs could not follow it.
    document(folder, "-D warnings")
    document(folder / "json", "-Z unstable-options --output-format json", RUSTC_BOOTSTRAP="1")
    with open("ci/checks/api/reasons.toml", "rb") as file:
        reasons = tomllib.load(file)["reason"]
    why, used, failed = collections.Counter(), set(), False
    for name in CRATES:
        crate_document = json.loads((folder / "json/doc" / f"{name}.json").read_text(encoding="utf-8"))
        if crate_document["format_version"] != VERSION:
            print(f"api: skipped: rustdoc writes version {crate_document['format_version']} of its JSON, not {VERSION}")
            return
        crate, shown = Crate(name, crate_document), 0
        for item in crate.items:
            has_example = crate.has_example(item)
            rule, text = ("", "an example") if has_example else reason(item, reasons)
            what = f"{'::'.join(item.path)} ({item.kind})"
            if text is None:
                print(f"api: {what} has neither an example nor a reason", file=sys.stderr)
                failed = True
            elif lists:
                print(f"api:   {what}: {text}")
            shown += has_example
            used.add(rule)
            why[text] += not has_example
        count = len(crate.items)
        print(f"api: {name}: {count} items, {shown} with an example, {count - shown} without")
    for entry in reasons:
        print(f"api: {why[entry['why']]:4}  {entry['why']}")
        for unused in set(entry.get("kinds", []) + entry.get("items", [])) - used:
            print(f"api: ci/checks/api/reasons.toml: nothing that {unused} means needs a reason", file=sys.stderr)
            failed = True
    if failed:
        sys.exit(1)
    print("api: ok")


if __name__ == "__main__":
    main()
