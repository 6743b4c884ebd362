"""Finds circles between the files of a crate: modules of one folder that use each other.

A file uses another one if it names one of its items, directly or by a re-export. The check compares
siblings, each together with the modules below it. A parent may use its children, and children may use
what their parent defines. Files of tests count, but not a module of tests within a file, which may use what uses this
file. Calls of methods have no path, so they are not detected.
"""

import re

COMMENT_OR_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(\#*)".*?"\1|b?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'""", re.DOTALL
)
ITEM = re.compile(
    r"^(?:pub(?:\([^)]*\))? )?(?:const |unsafe |async |extern )*"
    r"(?:fn|struct|enum|union|trait|type|const|static|mod|macro_rules!) (\w+)",
    re.MULTILINE,
)
USE = re.compile(r"^ *(?:pub(?:\([^)]*\))? )?use ([^;]+);", re.MULTILINE)
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")
TEST = r"#\[cfg\((?:test|(?:all|any)\(test\b[^]]*)\)\]\s*"
TEST_FILE = re.compile(TEST + r"(?:#\[[^]]*\]\s*)*(?:pub )?mod (\w+);")
TEST_BLOCK = re.compile(
    rf"^( *){TEST}(?:#\[[^]]*\]\s*)*(?:pub )?mod \w+ \{{\n.*?^\1\}}", re.MULTILINE | re.DOTALL
)


def code_of(path):
    """Returns the file without comments and literals; line numbers stay the same."""
    blank = lambda found: "\n" * found.group().count("\n") or " "
    return COMMENT_OR_TEXT.sub(blank, path.read_text())


def leaves(tree):
    """Yields (path, local name) of each leaf of a use tree: `a::{b, c as d}` gives `a::b` as b, `a::c` as d."""
    tree = tree.strip()
    if "{" in tree:
        head, rest = tree.split("{", 1)
        depth, part = 0, ""
        for letter in rest[: rest.rindex("}")]:
            depth += {"{": 1, "}": -1}.get(letter, 0)
            if letter == "," and depth == 0:
                yield from leaves(head + part.strip())
                part = ""
            else:
                part += letter
        if part.strip():
            yield from leaves(head + part.strip())
        return
    path, _, alias = (part.strip() for part in tree.partition(" as "))
    parts = path.split("::")
    if parts[-1] == "self":
        parts.pop()
    yield tuple(parts), alias or parts[-1]


class Module:
    """A file: its module path, the items that it defines, its imports, and the paths that it uses."""

    def __init__(self, place, code):
        self.place = place
        code = TEST_BLOCK.sub("", code)
        self.defines = set(ITEM.findall(code))
        imports = [leaf for tree in USE.findall(code) for leaf in leaves(re.sub(r"\s+", " ", tree))]
        self.imports = {name: path for path, name in imports if name != "*"}
        self.globs = [path[:-1] for path, name in imports if name == "*"]
        named = [tuple(path.split("::")) for path in PATH.findall(USE.sub("", code))]
        self.names = [path for path, _ in imports] + named


def modules_of(root):
    """Returns the modules of the crate at `root` by their path."""
    modules = {}
    for path in sorted(root.rglob("*.rs")):
        place = path.relative_to(root).with_suffix("").parts
        if place[-1] in ("mod", "lib", "main"):
            place = place[:-1]
        modules[place] = Module(place, code_of(path))
    return modules


def definer(modules, here, path, seen=()):
    """Returns the path of the module that defines `path`, as written in the module at `here`, or None."""
    if (here, path) in seen or not path:
        return here if not path else None
    seen = (*seen, (here, path))
    first, rest = path[0], path[1:]
    if first in ("crate", "self", "super"):
        start = {"crate": (), "self": here, "super": here[:-1]}[first]
        return definer(modules, start, rest, seen)
    if here + (first,) in modules:
        return definer(modules, here + (first,), rest, seen)
    module = modules.get(here)
    if module is None:
        return None
    if first in module.defines or first == "*":
        return here
    sources = [module.imports[first] + rest] if first in module.imports else []
    sources += [glob + path for glob in module.globs]
    for source in sources:
        if source[0] in ("crate", "self", "super") or here + source[:1] in modules:
            found = definer(modules, here, source, seen)
            if found is not None:
                return found
    return None


def edges_of(modules):
    """Returns {(parent, child, other child): names}: each use of a sibling, with the items used."""
    edges = {}
    for place, module in modules.items():
        for path in module.names:
            target = definer(modules, place, path)
            if target is None:
                continue
            common = 0
            while common < min(len(place), len(target)) and place[common] == target[common]:
                common += 1
            if common in (len(place), len(target)):
                continue
            key = place[:common], place[common], target[common]
            edges.setdefault(key, set()).add(path[-1])
    return edges


def circles(root):
    """Yields (folder, description) for each circle in the crate at `root`, in its shortest form."""
    edges = edges_of(modules_of(root))
    for parent in sorted({key[0] for key in edges}):
        uses = {}
        for (folder, one, other), names in edges.items():
            if folder == parent:
                uses.setdefault(one, {})[other] = names
        for ring in rings(uses):
            steps = [
                f"{one} uses {', '.join(sorted(uses[one][other]))} of {other}"
                for one, other in zip(ring, (*ring[1:], ring[0]))
            ]
            yield "/".join((*root.parts, *parent)), "; ".join(steps)


def rings(uses):
    """Yields the shortest circle through each node; each circle only once."""
    found = set()
    for start in sorted(uses):
        frontier, before = [start], {}
        while frontier and start not in before:
            frontier, old = [], frontier
            for one in old:
                for other in sorted(uses.get(one, ())):
                    if other not in before:
                        before[other] = one
                        frontier.append(other)
        if start in before:
            ring = [start]
            while before[ring[0]] != start:
                ring.insert(0, before[ring[0]])
            ring = ring[-1:] + ring[:-1]
            turn = ring.index(min(ring))
            found.add(tuple(ring[turn:] + ring[:turn]))
    return sorted(found)
