"""A process's list of mappings, built like Linux builds it: the program low, the mappings from the top down.

The lists of this folder have the shape of public reports; names, folders and numbers are our own. A list is made by a
function that gets a `Process` and is registered by `listing`. What it makes is the same at every run, since all that
is random comes from the case's name. `ours=True` marks the mappings that the cause accounts for; `key.tsv` has their
number, and diagnosis.py compares the two.
"""

import random

PAGE, KIB, MIB, GIB, TIB = 1 << 12, 1 << 10, 1 << 20, 1 << 30, 1 << 40
# The order in which the kernel prints VmFlags.
FLAGS = "rd wr ex sh mr mw me ms gd pf lo io sr rr dc de ac nr ht wf dd sd mm hg nh mg um uw".split()
LIB = "/usr/lib/x86_64-linux-gnu/"
CASES = {}


def listing(name, form="maps"):
    """Registers a list in one of the forms `maps`, `smaps` and `hs_err`."""
    def add(build):
        assert name not in CASES, name
        CASES[name] = (build, form)
        return build
    return add


def make(name):
    """Returns the text of a case, and the number of mappings that its cause accounts for."""
    build, form = CASES[name]
    process = Process(name)
    build(process)
    process.check()
    return getattr(process, form)(), process.marked


class Mapping:
    """One line of the list."""

    def __init__(self, start, size, perms, name, offset, dev, inode, flags):
        self.start, self.end, self.perms, self.name = start, start + size, perms, name
        self.offset, self.dev, self.inode, self.flags = offset, dev, inode, flags

    def line(self):
        text = f"{self.start:08x}-{self.end:08x} {self.perms} {self.offset:08x} {self.dev} {self.inode} "
        return f"{text:73}{self.name}" if self.name else text

    def vm_flags(self):
        has = {f for letter, f in zip("rwx", ("rd", "wr", "ex")) if letter in self.perms} | {"mr", "mw", "me", "sd"}
        has |= {"sh", "ms"} if self.perms[3] == "s" else {"ac"} if "w" in self.perms else set()
        return " ".join(flag for flag in FLAGS if flag in has | set(self.flags.split()))


class Process:
    """The mappings so far, and where the next ones go."""

    def __init__(self, name):
        self.chance = random.Random(name)
        self.name, self.mappings, self.marked, self.header = name, [], 0, ""
        self.dev = self.chance.choice(["08:01", "fd:01", "fe:00", "103:02", "00:2c"])
        self.inode = self.chance.randrange(130000, 900000)
        self.files = {}
        self.top = 0x7F0000000000 + self.chance.randrange(1 << 27, 1 << 28) * PAGE

    def put(self, start, size, perms="rw-p", name="", offset=0, dev=None, inode=None, flags="", ours=False):
        """Adds a mapping at an address. A name that begins with a slash is a file's."""
        if inode is None and name.startswith("/") and size:
            inode = self.files.setdefault(name, self.inode + 7 * len(self.files))
        if dev is None:
            dev = self.dev if inode else "00:00"
        self.mappings.append(Mapping(start, size, perms, name, offset, dev, inode or 0, flags))
        self.marked += ours
        return start

    def skip(self, size):
        """Leaves a gap."""
        self.top -= size

    def align(self, size):
        """Leaves a gap to the next lower multiple."""
        self.top -= self.top % size

    def map(self, size, perms="rw-p", name="", **more):
        """Adds a mapping below the last one."""
        self.top -= size
        return self.put(self.top, size, perms, name, **more)

    def elf(self, path, text=0x60000, rest=0x20000, data=0x2000, bss=0, at=None, ours=False):
        """Adds a library, or a program `at` an address."""
        head, rest = text // 6 & -PAGE or PAGE, rest or PAGE
        sizes = [("r--p", head, 0), ("r-xp", text, head), ("r--p", rest, head + text), ("r--p", 2 * PAGE, head + text + rest - PAGE),
                 ("rw-p", data, head + text + rest + PAGE)]
        whole = sum(size for _, size, _ in sizes) + bss
        if not at:
            at = self.top = self.top - whole
        start = at
        for perms, size, offset in sizes:
            self.put(start, size, perms, path, offset=offset, ours=ours)
            start += size
        if bss:
            self.put(start, bss, ours=ours)
        return at + whole

    def libraries(self, *names, folder=LIB, ours=False):
        """Adds libraries of random sizes: their names without folder."""
        for name in names:
            text = self.chance.randrange(6, 400) * PAGE
            self.elf(folder + name, text, text // 3 & -PAGE or PAGE, self.chance.choice([1, 1, 2, 5]) * PAGE,
                     self.chance.choice([0, 0, PAGE, 4 * PAGE]), ours=ours)
            self.skip(self.chance.choice([0, PAGE, 3 * PAGE]) or PAGE)

    def start(self, program, *libraries, text=0x180000, heap=0x84000, musl=False):
        """Adds what every process has: program, heap, stack, vDSO, dynamic loader and C library, and libraries."""
        end = self.elf(program, text, text // 2 & -PAGE, 0x9000, 0x6000, at=0x550000000000 + self.chance.randrange(1 << 28) * PAGE)
        if heap:
            self.put(end + self.chance.randrange(1 << 12) * PAGE, heap, name="[heap]")
        self.put(self.top + 0x1D1 * PAGE + self.chance.randrange(1 << 15) * PAGE, 0x21000, name="[stack]", flags="gd")
        if musl:
            self.elf("/lib/ld-musl-x86_64.so.1", 0x4E000, 0x35000, 0x1000, 0x3000)
        else:
            self.elf(LIB + "ld-linux-x86-64.so.2", 0x26000, 0xA000, 0x2000)
        self.map(0x2000, "r-xp", "[vdso]")
        self.map(0x4000, "r--p", "[vvar]")
        self.map(0x2000)
        if not musl:
            self.elf(LIB + "libc.so.6", 0x155000, 0x53000, 0x2000, 0xD000)
            self.skip(PAGE)
        self.libraries(*libraries)
        return self

    def gaps(self, size, low=0x10000, high=None):
        """Yields the addresses at which mappings of a size fill all gaps between `low` and `high`, from the top down."""
        taken = sorted((each.start, each.end) for each in self.mappings)
        for start, end in reversed([*taken, (high or taken[-1][1], 1 << 64)]):
            before = max((stop for begin, stop in taken if begin < start), default=0)
            while start - size >= max(before, low) and start <= (high or start):
                start -= size
                yield start

    def stacks(self, count, size, guard=PAGE, ours=False, gap=0, name="", guard_name=""):
        """Adds stacks, each with a guard below."""
        for _ in range(count):
            self.map(size, name=name, ours=ours)
            self.map(guard, "---p", guard_name, ours=ours)
            if gap:
                self.skip(gap)

    def arenas(self, count, ours=False, size=64 * MIB):
        """Adds heaps of glibc's arenas: aligned, the used part writable and the rest not accessible."""
        self.align(size)
        for _ in range(count):
            used = self.chance.randrange(33, 4000) * PAGE
            self.top -= size
            self.put(self.top, used, ours=ours)
            self.put(self.top + used, size - used, "---p", ours=ours)
            if self.chance.random() < 0.3:
                self.skip(size)

    def locale(self):
        """Adds the small files of a locale."""
        for name in "CTYPE NUMERIC TIME COLLATE MONETARY MESSAGES/SYS_LC_MESSAGES PAPER NAME ADDRESS TELEPHONE MEASUREMENT".split():
            self.map(0x57000 if name == "CTYPE" else PAGE, "r--p", f"/usr/lib/locale/C.utf8/LC_{name}")
        self.map(0x7000, "r--s", LIB + "gconv/gconv-modules.cache")

    def check(self):
        """Fails if the list is none that a kernel could print."""
        self.mappings.sort(key=lambda mapping: mapping.start)
        for low, high in zip(self.mappings, self.mappings[1:]):
            assert low.end <= high.start, f"{self.name}: {low.line()} overlaps {high.line()}"
        for each in self.mappings:
            assert each.start < each.end and each.start % PAGE == each.end % PAGE == 0, f"{self.name}: {each.line()}"

    def maps(self):
        end = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"
        return self.header + "".join(each.line() + "\n" for each in self.mappings) + end * (self.mappings[-1].end > 1 << 32)

    def smaps(self):
        text = []
        for each in self.mappings:
            size = (each.end - each.start) // KIB
            rss = 0 if each.perms.startswith("---") else size if size <= 256 else size // 3 & -4
            rows = [("Size", size), ("KernelPageSize", 4), ("MMUPageSize", 4), ("Rss", rss), ("Pss", rss), ("Shared_Clean", 0),
                    ("Shared_Dirty", 0), ("Private_Clean", 0), ("Private_Dirty", rss), ("Referenced", rss),
                    ("Anonymous", 0 if each.inode else rss), ("LazyFree", 0), ("AnonHugePages", 0), ("Swap", 0), ("SwapPss", 0),
                    ("Locked", rss if "lo" in each.flags.split() else 0)]
            text.append(each.line() + "\n" + "".join(f"{key + ':':16}{value:8} kB\n" for key, value in rows)
                        + f"THPeligible:    0\nVmFlags: {each.vm_flags()} \n")
        return "".join(text)

    def hs_err(self):
        """The file that a Java virtual machine writes when it ends because of an error."""
        head = ("#\n# There is insufficient memory for the Java Runtime Environment to continue.\n"
                "# Native memory allocation (mmap) failed to map 65536 bytes for committing reserved memory.\n"
                "# Possible reasons:\n#   The system is out of physical RAM or swap space\n"
                "#   The process is running with CompressedOops enabled, and the Java Heap may be blocking the growth of the native heap\n"
                "#\n#  Out of Memory Error (os_linux.cpp:2913), pid=4711, tid=4790\n#\n"
                "# JRE version: OpenJDK Runtime Environment (17.0.9+9) (build 17.0.9+9)\n"
                "# Java VM: OpenJDK 64-Bit Server VM (17.0.9+9, mixed mode, sharing, tiered, compressed oops, g1 gc, linux-amd64)\n#\n\n"
                "---------------  S U M M A R Y ------------\n\nCommand Line: " + (self.header or "-Xmx4g -jar service.jar") + "\n\n"
                "Host: Xeon, 16 cores, 62G, Linux\n\n---------------  P R O C E S S  ---------------\n\nDynamic libraries:\n")
        tail = ("\n\nVM Arguments:\njvm_args: -Xmx4g \njava_command: service.jar\n\n---------------  S Y S T E M  ---------------\n\n"
                "OS:\nLinux 5.15\nvm.max_map_count\n65530\n\nEND.\n")
        return head + "".join(each.line() + "\n" for each in self.mappings) + tail
