"""Lists whose mappings a language's runtime makes: heaps, code, WebAssembly, trampolines."""

from .layout import GIB, KIB, LIB, MIB, PAGE, listing
from .stacks import CXX, jvm


def node(p):
    """Node.js at rest: isolates' code, a few pages of the heap."""
    p.start("/usr/bin/node", *CXX, "libdl.so.2", "libpthread.so.0", text=0x3A00000, heap=9 * MIB)
    p.align(GIB)
    p.map(128 * MIB, "---p")
    p.stacks(10, 8 * MIB)
    return p


def heap_pages(p, count, ours=False, flags=""):
    """Pages of a collector's heap: aligned to their size, with gaps where a page was given back."""
    p.align(256 * KIB)
    for _ in range(count):
        p.skip(256 * KIB * p.chance.choice([1, 1, 1, 2, 3]))
        p.map(256 * KIB, flags=flags, ours=ours)


@listing("heap-of-node", "smaps")
def _(p):
    """The pages carry the mark `do not copy on fork` because V8 sets it; they are apart by gaps."""
    heap_pages(node(p), 5600, ours=True, flags="dc")


@listing("heap-of-many-isolates")
def _(p):
    """A server with an isolate for each customer: pages and pages of code."""
    node(p)
    for _ in range(1900):
        p.align(256 * KIB)
        p.skip(512 * KIB)
        p.map(256 * KIB, ours=True)
        p.skip(256 * KIB)
        for size, perms in [(PAGE * 2, "rw-p"), (PAGE, "---p"), (PAGE * 60, "r-xp"), (PAGE, "---p")]:
            p.map(size, perms, ours=True)


@listing("heap-of-ruby")
def _(p):
    p.start("/usr/bin/ruby3.1", "libruby-3.1.so.3.1.2", "libgmp.so.10.4.1", "libyaml-0.so.2.0.9", text=0x1000, heap=260 * MIB)
    p.locale()
    p.stacks(5, MIB)
    for _ in range(8800):
        p.align(64 * KIB)
        p.skip(64 * KIB * p.chance.choice([1, 2]))
        p.map(64 * KIB, ours=True)


@listing("wasm-memories")
def _(p):
    """A function host: each instance reserves 8 GiB and a guard for a memory of a few pages."""
    p.start("/usr/bin/wasmtime", "libgcc_s.so.1", "libm.so.6", text=0x1200000)
    p.stacks(18, 2 * MIB)
    for _ in range(4300):
        used = p.chance.choice([1, 2, 17, 64, 300]) * 64 * KIB
        p.skip(64 * KIB)
        p.top -= 10 * GIB
        p.put(p.top, used, ours=True)
        p.put(p.top + used, 10 * GIB - used, "---p", ours=True)


@listing("wasm-address-space-full")
def _(p):
    """About 13,000 reservations of 10 GiB fill 127 of 128 TiB; the number of mappings is far below the limit."""
    node(p)
    for start in list(p.gaps(10 * GIB)):
        p.put(start, 2 * MIB)
        p.put(start + 2 * MIB, 10 * GIB - 2 * MIB, "---p")


@listing("java-zgc")
def _(p):
    """The heap of a concurrent collector: one memory file whose pieces lie in any order, seen at three addresses."""
    jvm(p, 2 * GIB)
    p.stacks(90, 1008 * KIB, 4 * PAGE)
    for view in (0x040000000000, 0x080000000000, 0x100000000000):
        pieces = list(range(9000))
        p.chance.shuffle(pieces)
        for k, piece in enumerate(pieces):
            p.put(view + k * 2 * MIB, 2 * MIB, "rw-s", "/memfd:java_heap (deleted)", piece * 2 * MIB, "00:01", 1042, ours=True)


@listing("java-zgc-at-rest")
def _(p):
    """The same collector with a small heap that was touched in order: nothing to tell."""
    jvm(p, 2 * GIB)
    p.stacks(35, 1008 * KIB, 4 * PAGE)
    for view in (0x040000000000, 0x080000000000, 0x100000000000):
        for k in range(8):
            p.put(view + k * 34 * MIB, 32 * MIB, "rw-s", "/memfd:java_heap (deleted)", k * 64 * MIB, "00:01", 1042)


@listing("code-doublemapped")
def _(p):
    """Each piece of compiled code is written through one mapping of a memory file and executed through another."""
    p.start("/usr/share/dotnet/dotnet", *CXX, "libicuuc.so.72.1", "libicudata.so.72.1", "libssl.so.3")
    p.libraries("libcoreclr.so", "libclrjit.so", "System.Private.CoreLib.dll", folder="/usr/share/dotnet/shared/8.0.1/")
    p.map(256 * GIB, "---p")
    p.map(300 * MIB)
    p.stacks(60, 1536 * KIB)
    for k in range(9500):
        p.map(64 * KIB, p.chance.choice(["rw-s", "r-xs", "r-xs"]), "/memfd:doublemapper (deleted)",
              offset=(k * 7919 % 9500) * 0x10000, dev="00:01", inode=2051, ours=True)


@listing("code-write-xor-execute")
def _(p):
    """A just-in-time compiler whose pieces of code change between writable and executable one by one."""
    p.start("/usr/lib/firefox-esr/firefox-bin", *CXX, "libX11.so.6.4.0", "libgtk-3.so.0.2406.32", text=0x60000)
    p.libraries("libxul.so", "libmozsqlite3.so", "libnss3.so", folder="/usr/lib/firefox-esr/")
    p.stacks(40, 8 * MIB)
    p.align(64 * KIB)
    for k in range(6800):
        p.map(64 * KIB * p.chance.choice([1, 1, 2]), ["r-xp", "rw-p", "r-xp", "---p"][k % 4], ours=True)


@listing("barrier-boehm")
def _(p):
    """An incremental collector notices writes by protecting pages; blocks are written in no order."""
    p.start("/usr/bin/inkscape", "libgc.so.1.5.1", *CXX, "libglib-2.0.so.0.7400.6", "libcairo.so.2.11600.0", text=0x9000)
    p.stacks(9, 8 * MIB)
    for k in range(18000):
        p.map(p.chance.choice([1, 1, 2, 3, 7]) * PAGE, "r--p" if k % 2 else "rw-p", ours=True)


@listing("barrier-lisp")
def _(p):
    p.start("/usr/lib/sbcl/sbcl", "libzstd.so.1.5.4", "libm.so.6", text=0x40000)
    p.put(0x50000000, 0x280000, "rwxp", "/usr/lib/sbcl/sbcl.core", offset=0x8000)
    start = 0x1000000000
    for k in range(14000):
        size = p.chance.randrange(1, 12) * 32 * KIB
        p.put(start, size, "r-xp" if k % 2 else "rwxp", ours=True)
        start += size
    p.put(start, 8 * GIB, "rwxp")


@listing("trampolines-libffi")
def _(p):
    """Callbacks that are created and never freed: each table is a page of libffi's code and a page of data."""
    p.start("/usr/bin/python3.11", "libexpat.so.1.8.10", "libz.so.1.2.13", text=0x2AD000, heap=44 * MIB)
    p.libraries("libffi.so.8.1.2")
    p.libraries("_ctypes.cpython-311-x86_64-linux-gnu.so", folder="/usr/lib/python3.11/lib-dynload/")
    p.locale()
    for k in range(5400):
        p.map(PAGE, ours=True)
        p.map(PAGE, "r-xp", LIB + "libffi.so.8.1.2", offset=0x7000, ours=True)
        if k % 40 == 0:
            p.skip(MIB)


@listing("libraries-extracted-again")
def _(p):
    """An application server that unpacks a native library at each deployment; the earlier ones stay loaded."""
    jvm(p)
    p.stacks(80, 1008 * KIB, 4 * PAGE)
    for _ in range(2600):
        p.libraries(f"snappy-1.1.8-{p.chance.randrange(1 << 40):010x}-libsnappyjava.so", folder="/var/tmp/app/", ours=True)


@listing("plugins-loaded")
def _(p):
    """An office program with 430 libraries and data of fonts: ordinary for it."""
    p.start("/usr/lib/libreoffice/program/soffice.bin", *CXX, text=0x1000, heap=30 * MIB)
    p.libraries(*(f"lib{word}{k}lo.so" for k in range(43) for word in "sc sd sw svx vcl xo utl cui fwk uui".split()),
                folder="/usr/lib/libreoffice/program/")
    for k in range(60):
        p.map(p.chance.randrange(20, 500) * PAGE, "r--p", f"/usr/share/fonts/truetype/family{k}/Regular.ttf")
    p.locale()
    p.stacks(14, 8 * MIB)
