"""Follows the advice that `vmarea explain` gives for a cause: starts a real program without and with it, and counts the mappings.

The counts stand in crates/explain/src/causes/table.toml as `measured`. Fails if one there is off by more than a tenth
(counts of small processes by 40), or if an advice removes less than a third of the mappings.

usage: advised.py --vmarea FILE --venv FOLDER [CAUSE,...]
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

from programs.running import LIB, Program, Room, Start, environment, missing, running

TABLE = pathlib.Path(__file__).parents[3] / "crates/explain/src/causes/table.toml"
PYTHON = "/usr/bin/python3"
READY = "\nprint('ready', flush=True)\ninput()\n"
MEASURED = re.compile(r"measured: ([\d,]+) mappings become ([\d,]+) ")
ADVISED = {}


def advised(cause, *debian, pip=()):
    """Registers a function that returns the `Start` of a program, without or with the advice for a cause."""
    def add(start):
        ADVISED[cause] = Program(start, debian, pip)
        return start
    return add


@advised("thread-stacks", "gcc")
def _(room, follow):
    return Start([room.compiled("threads.c"), 300 if follow else 3000, 0])


@advised("unjoined-threads", "gcc")
def _(room, follow):
    return Start([room.compiled("unjoined.c"), 2500, *["detached"] * follow])


@advised("coroutine-stacks", "php-cli")
def _(room, follow):
    text = """<?php for ($i = 0; $i < 1200; $i++) { $f = new Fiber(function () { Fiber::suspend(); }); $f->start(); $a[$i %% %d] = $f; }
echo "ready\\n"; sleep(600);""" % (50 if follow else 1200)
    return Start(["php", room.write("fibers.php", text)])


@advised("glibc-arenas", "gcc")
def _(room, follow):
    return Start([room.compiled("arenas.c"), 160, "few"], env={"MALLOC_ARENA_MAX": "4" if follow else "256"})


@advised("jemalloc-decommit", "gcc", "libjemalloc2")
def _(room, follow):
    room.write("setting", "0" if follow else "2")
    shell = 'mount --bind setting /proc/sys/vm/overcommit_memory && exec "$@"'
    return Start(["unshare", "-m", "sh", "-c", shell, "sh", "env", f"LD_PRELOAD={LIB}libjemalloc.so.2",
                  "MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0", room.compiled("blocks.c"), 12000])


@advised("jemalloc-unmaps", "gcc", "libjemalloc2")
def _(room, follow):
    conf = f"dirty_decay_ms:0,muzzy_decay_ms:0,retain:{'true' if follow else 'false'}"
    return Start([room.compiled("blocks.c"), 30000], env={"LD_PRELOAD": LIB + "libjemalloc.so.2", "MALLOC_CONF": conf})


@advised("allocator-guards", "gcc", "electric-fence")
def _(room, follow):
    return Start([room.compiled("small.c"), 4000], env={} if follow else {"LD_PRELOAD": "/usr/lib/libefence.so.0.0"})


def pieces(room, follow, way):
    return Start([room.compiled("pieces.c"), 3000, way, *["whole"] * follow])


@advised("memory-locks", "gcc")
def _(room, follow):
    return pieces(room, follow, "lock")


@advised("huge-page-advice", "gcc")
def _(room, follow):
    return pieces(room, follow, "huge")


@advised("dump-exclusion", "gcc")
def _(room, follow):
    return pieces(room, follow, "dump")


@advised("guarded-secrets", "gcc", "libsodium-dev")
def _(room, follow):
    return Start([room.compiled("secrets.c", "-lsodium"), 700 // 35 if follow else 700])


@advised("kernel-rings", "gcc", "liburing-dev")
def _(room, follow):
    return Start([room.compiled("rings.c", "-luring"), 9 if follow else 900])


@advised("shared-memory-objects", "python3")
def _(room, follow):
    objects, size = (1, 3000 * 4096) if follow else (3000, 4096)
    text = f"""import mmap, os
kept = []
for n in range({objects}):
    file = os.memfd_create('frame')
    os.ftruncate(file, {size})
    kept.append(mmap.mmap(file, {size}))
    os.close(file)""" + READY
    return Start([PYTHON, room.write("shared.py", text)])


@advised("one-file-in-windows", "python3")
def _(room, follow):
    windows = "[mmap.mmap(file.fileno(), 1 << 30)]" if follow else \
        "[mmap.mmap(file.fileno(), 65536, offset=131072 * n) for n in range(2800)]"
    text = f"""import mmap
with open('points.db', 'w+b') as file:
    file.truncate(1 << 30)
    kept = {windows}""" + READY
    return Start([PYTHON, room.write("windows.py", text)])


@advised("many-data-files", "python3")
def _(room, follow):
    keep = "file.read()" if follow else "mmap.mmap(file.fileno(), 4096)"
    text = f"""import mmap
kept = []
for n in range(2000):
    with open(f'{{n}}.data', 'w+b') as file:
        file.truncate(4096)
        kept.append({keep})""" + READY
    return Start([PYTHON, room.write("files.py", text)])


@advised("libraries-loaded-again", "python3", "gcc")
def _(room, follow):
    room.run("gcc", "-shared", "-o", "native.so", "-x", "c", "/dev/null")
    name = "native.so" if follow else "{n}.so"
    text = f"""import ctypes, shutil
kept = []
for n in range(500):
    if not {follow}:
        shutil.copy('native.so', f'{{n}}.so')
    kept.append(ctypes.CDLL(f'./{name}'))""" + READY
    return Start([PYTHON, room.write("load.py", text)])


@advised("data-files-in-pieces", "python3")
def _(room, follow):
    pieces = "[(0, 400 * 4096)]" if follow else "[(n * 4096, 4096) for n in range(400)]"
    text = f"""import mmap
kept = []
for n in range(20):
    with open(f'{{n}}.data', 'w+b') as file:
        file.truncate(400 * 4096)
        kept += [mmap.mmap(file.fileno(), size, offset=at) for at, size in {pieces}]""" + READY
    return Start([PYTHON, room.write("pieces.py", text)])


@advised("wasm-reservations", pip=("wasmtime==50.0.1",))
def _(room, follow):
    text = f"""import wasmtime
config = wasmtime.Config()
if {follow}:
    config.memory_reservation = config.memory_guard_size = config.memory_reservation_for_growth = 0
engine = wasmtime.Engine(config)
module = wasmtime.Module(engine, '(module (memory 1) (func (export "run")))')
store = wasmtime.Store(engine)
kept = [wasmtime.Instance(store, module, []) for _ in range(900)]""" + READY
    return Start([room.python, room.write("instances.py", text)])


def counted(vmarea, venv, cause, follow):
    """Returns the number of mappings of a program; without the advice, the cause must be told."""
    program = ADVISED[cause]
    with tempfile.TemporaryDirectory() as folder:
        room = Room(folder, environment(program.pip, venv))
        with running(program.start(room, follow), room) as pid:
            done = subprocess.run([vmarea, "explain", "-p", str(pid), "--json"], stdout=subprocess.PIPE, check=True)
    report = json.loads(done.stdout)
    told = [one["name"] for one in report.get("causes", [])][:1]
    if not follow and told != [cause]:
        sys.exit(f"advised: {cause}: explain tells {told}")
    return report["mappings"]


def agree(said, counts):
    """Checks the counts in the table."""
    if not said:
        return False
    numbers = [int(number.replace(",", "")) for number in said.groups()]
    return all(abs(number - count) <= max(count // 10, 40) for number, count in zip(numbers, counts, strict=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vmarea", required=True)
    parser.add_argument("--venv", type=pathlib.Path, required=True)
    parser.add_argument("causes", nargs="?", type=lambda text: text.split(","), default=list(ADVISED))
    arguments = parser.parse_args()
    if wanted := missing(ADVISED, arguments.causes):
        subprocess.run(["ci/lib/install.sh", *wanted], check=True, stdout=sys.stderr)
    entries = {entry["name"]: entry for entry in tomllib.loads(TABLE.read_text(encoding="utf-8"))["cause"]}
    bad = 0
    print(f"{'cause':26}{'before':>10}{'after':>10}")
    for cause in arguments.causes:
        before, after = (counted(arguments.vmarea, arguments.venv.resolve(), cause, follow) for follow in (False, True))
        right = after * 3 <= before * 2 and agree(MEASURED.match(entries[cause]["measured"]), (before, after))
        bad += not right
        print(f"{cause:26}{before:10,}{after:10,}{'' if right else '   not as in table.toml: ' + entries[cause]['measured']}", flush=True)
    sys.exit(bool(bad))


main()
