"""Checks the shape of the workspaces, by `cargo metadata` of each; findings on standard error.

The rules, each stated once here: which crate may depend on which, which stratum of the core may
use which, where `unsafe` is allowed, that files do not use each other in circles, that every
dependency is used and has its line in CONTRIBUTING.md, and that lab/ states what the product states. The checks read the text of the sources, so
they do not detect a path that a macro creates.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

from circles import circles, code_of

ARROWS = {
    "vmarea-sync": set(),
    "vmarea-range-tree": {"vmarea-sync"},
    "vmarea-merge": {"vmarea-sync"},
    # The tests of the core, but not the core, need a platform and an allocator that counts.
    "vmarea": {"vmarea-merge", "vmarea-range-tree", "vmarea-soft-platform", "vmarea-sync", "vmarea-test-support"},
    "vmarea-soft-platform": {"vmarea-sync", "vmarea"},
    "vmarea-capi": {"vmarea"},
    "vmarea-memory-set": {"vmarea", "vmarea-test-support"},
    "vmarea-trace": set(),
    "vmarea-linux-sys": set(),
    "vmarea-process": {"vmarea-linux-sys", "vmarea-merge", "vmarea-trace"},
    "vmarea-recorder": {"vmarea-linux-sys", "vmarea-process", "vmarea-replay", "vmarea-trace", "vmarea"},
    "vmarea-replay": {"vmarea-trace", "vmarea"},
    "vmarea-repair": {"vmarea-linux-sys", "vmarea-merge", "vmarea-process"},
    "vmarea-symbols": {"vmarea-process", "vmarea-test-support"},
    "vmarea-explain": {"vmarea-process", "vmarea-recorder", "vmarea-replay", "vmarea-symbols", "vmarea-trace", "vmarea", "vmarea-test-support"},
    "vmarea-report": {"vmarea-explain", "vmarea-process", "vmarea-replay", "vmarea-trace", "vmarea"},
    "vmarea-repair-capi": {"vmarea-repair", "vmarea-test-support"},
    "vmarea-tables": {"vmarea-explain", "vmarea-process", "vmarea-replay", "vmarea-trace"},
    "vmarea-python": {"vmarea-explain", "vmarea-process", "vmarea-recorder", "vmarea-replay", "vmarea-tables", "vmarea-trace"},
    "vmarea-test-support": set(),
    "vmarea-terminal": set(),
    "vmarea-cli": {
        "vmarea-explain",
        "vmarea-process",
        "vmarea-recorder",
        "vmarea-repair",
        "vmarea-replay",
        "vmarea-report",
        "vmarea-tables",
        "vmarea-terminal",
        "vmarea-test-support",
        "vmarea-trace",
        "vmarea",
    },
    # The laboratory, on which nothing of the product depends.
    "vmarea-oracle": {"vmarea-linux-sys", "vmarea-process"},
    "vmarea-conform": {"vmarea-oracle", "vmarea-process", "vmarea-replay", "vmarea-soft-platform", "vmarea-test-support", "vmarea-trace", "vmarea"},
    "vmarea-experiments": {"vmarea-linux-sys", "vmarea-oracle", "vmarea-process", "vmarea-range-tree", "vmarea-replay", "vmarea-sync", "vmarea-trace", "vmarea"},
    "vmarea-lab": {
        "vmarea-conform",
        "vmarea-experiments",
        "vmarea-explain",
        "vmarea-oracle",
        "vmarea-process",
        "vmarea-recorder",
        "vmarea-replay",
        "vmarea-report",
        "vmarea-terminal",
        "vmarea-test-support",
        "vmarea-trace",
        "vmarea",
    },
}

NO_STD = {
    "vmarea-sync",
    "vmarea-range-tree",
    "vmarea-merge",
    "vmarea",
    "vmarea-memory-set",
    "vmarea-soft-platform",
}

# Where `unsafe` is allowed, as prefixes of paths from the root.
UNSAFE = (
    "crates/sync/",
    "crates/range-tree/",
    "crates/linux-sys/",
    "crates/capi/",
    "crates/repair-capi/",
    "lab/oracle/",
    "tests/support/src/failing_allocator.rs",
    # A kernel needs it for the hardware, for switches of threads, and where memory has addresses of its own.
    "kernel/src/boot/",
    "kernel/src/cpu/",
    "kernel/src/memory/",
    "kernel/src/scheduler/",
    "kernel/src/space/background.rs",
    "kernel/src/space/user.rs",
    "kernel/src/syscall/mod.rs",
    "kernel/src/backtrace.rs",
    "kernel/src/console.rs",
    "kernel/src/main.rs",
    "kernel/src/traps.rs",
)

# Strata of crates/vmarea/src, the lowest first; a file that is not listed (lib.rs) may use everything.
STRATA = [
    {"types", "lookup", "changes"},
    {"page"},
    {"rmap"},
    {"vma"},
    {"mm"},
    {"fault"},
    {"syscall"},
]


def sources_of(folder):
    """Returns the Rust files below a folder, without those that a build wrote."""
    return sorted(path for path in folder.rglob("*.rs") if "target" not in path.relative_to(folder).parts)


def check_arrows(packages):
    """Yields dependencies between workspace crates that are not in ARROWS, including dev and build dependencies."""
    names = {package["name"] for package in packages}
    for package in packages:
        name = package["name"]
        if name not in ARROWS:
            yield f"{name}: a crate that ci/checks/layers.py does not know: say there what it may depend on"
            continue
        for dependency in package["dependencies"]:
            other = dependency["name"]
            # A crate whose tests need one of its features depends on itself.
            if other == name and dependency["kind"] == "dev":
                continue
            if other in names and other not in ARROWS[name]:
                yield f"{name} -> {other} ({dependency['kind'] or 'normal'}): no such arrow"


def check_dependencies(packages):
    """Yields external dependencies that are not used, or that have no reason in CONTRIBUTING.md."""
    names = {package["name"] for package in packages}
    reasons = set(re.findall(r"`([\w-]+)`", pathlib.Path("CONTRIBUTING.md").read_text()))
    for package in packages:
        folder = pathlib.Path(package["manifest_path"]).parent
        code = " ".join(path.read_text() for path in sources_of(folder))
        for dependency in package["dependencies"]:
            name = dependency["rename"] or dependency["name"]
            if not re.search(rf"\b{name.replace('-', '_')}\b", code):
                yield f"{package['name']}: {name} is not used"
            if dependency["name"] not in names and dependency["name"] not in reasons:
                yield f"{package['name']}: {name} has no line in CONTRIBUTING.md"


def check_crate_attributes(packages):
    """Yields crate roots that lack a required `#![no_std]` or `#![forbid(unsafe_code)]`."""
    for package in packages:
        for target in package["targets"]:
            path = pathlib.Path(target["src_path"]).relative_to(pathlib.Path.cwd())
            if not {"lib", "bin", "rlib", "cdylib", "staticlib"} & set(target["kind"]):
                continue
            code = code_of(path)
            if package["name"] in NO_STD and "#![no_std]" not in code:
                yield f"{path}: #![no_std] is missing"
            crate = f"{path.parts[0]}/{path.parts[1]}/"
            if any(place.startswith(crate) for place in UNSAFE):
                continue
            if "#![forbid(unsafe_code)]" not in code:
                yield f"{path}: #![forbid(unsafe_code)] is missing"


def check_unsafe(files):
    """Yields uses of `unsafe` in code where it is not allowed."""
    for path in files:
        if str(path).startswith(UNSAFE):
            continue
        for number, line in enumerate(code_of(path).splitlines(), 1):
            if re.search(r"\bunsafe\b", line):
                yield f"{path}:{number}: unsafe may stand only in {', '.join(UNSAFE)}"


def check_strata(root):
    """Yields uses of a higher stratum of the core by a lower one."""
    level = {name: height for height, names in enumerate(STRATA) for name in names}
    for path in sorted(root.rglob("*.rs")):
        own = path.relative_to(root).parts[0].removesuffix(".rs")
        if own not in level:
            continue
        for number, line in enumerate(code_of(path).splitlines(), 1):
            for other in re.findall(r"\bcrate::(\w+)", line):
                if level.get(other, -1) > level[own]:
                    yield f"{path}:{number}: {own} uses {other}, which lies above it"


def check_circles(crates):
    """Yields the circles of files of one folder that use each other (ci/lib/circles.py), in tests as well."""
    for crate in crates:
        tests = crate / "tests"
        for root in (crate / "src", tests, *(main.parent for main in sorted(tests.glob("*/main.rs")))):
            for folder, steps in circles(root):
                yield f"circle in {folder}: {steps}"


def check_laboratory():
    """Yields what lab/ states differently from the product, which a workspace cannot inherit from another one."""
    product, lab = (tomllib.loads(pathlib.Path(name).read_text()) for name in ("Cargo.toml", "lab/Cargo.toml"))
    for name in ("package", "lints"):
        if product["workspace"][name] != lab["workspace"][name]:
            yield f"lab/Cargo.toml: workspace.{name} is not that of Cargo.toml"
    for name in ("dev", "test"):
        if product["profile"][name] != lab["profile"][name]:
            yield f"lab/Cargo.toml: profile.{name} is not that of Cargo.toml"
    stated = product["workspace"]["dependencies"]
    for name, dependency in lab["workspace"]["dependencies"].items():
        if name in stated and "path" not in stated[name] and dependency != stated[name]:
            yield f"lab/Cargo.toml: {name} is not as in Cargo.toml"
    locked = [tomllib.loads(pathlib.Path(name).read_text())["package"] for name in ("Cargo.lock", "lab/Cargo.lock")]
    versions = [{(package["name"], package["version"]) for package in packages} for packages in locked]
    names = {name for name, _ in versions[0]}
    for name, version in sorted(versions[1] - versions[0]):
        if name in names:
            yield f"lab/Cargo.lock: {name} {version} is another version than in Cargo.lock"


def main():
    metadata = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline", "--manifest-path"]
    said = [subprocess.run([*metadata, f"{workspace}/Cargo.toml"], check=True, stdout=subprocess.PIPE).stdout for workspace in (".", "lab", "python")]
    packages = [package for line in said for package in json.loads(line)["packages"]]
    files = [path for folder in ("crates", "lab", "kernel/src", "python", "tests/support") for path in sources_of(pathlib.Path(folder))]
    findings = [
        *check_arrows(packages),
        *check_dependencies(packages),
        *check_crate_attributes(packages),
        *check_unsafe(files),
        *check_strata(pathlib.Path("crates/vmarea/src")),
        *check_circles([*(crate for folder in ("crates", "lab") for crate in sorted(pathlib.Path(folder).glob("*/"))), *map(pathlib.Path, ("kernel", "python", "python/tables"))]),
        *check_laboratory(),
    ]
    for finding in findings:
        print(f"layers: {finding}", file=sys.stderr)
    if findings:
        return 1
    print(f"layers: ok, {len(packages)} crates, {len(files)} files")
    return 0


sys.exit(main())
