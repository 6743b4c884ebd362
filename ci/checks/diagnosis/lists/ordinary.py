"""Lists of ordinary processes, in which no cause may be told."""

from .layout import GIB, KIB, MIB, PAGE, listing
from .runtimes import heap_pages, node
from .stacks import CXX, jvm


@listing("ordinary-postgres")
def _(p):
    p.start("/usr/lib/postgresql/15/bin/postgres", *CXX, "libxml2.so.2.9.14", "libicui18n.so.72.1", "libssl.so.3", "libldap-2.5.so.0.1.8",
            "libsystemd.so.0.35.0", text=0x600000, heap=900 * KIB)
    p.locale()
    p.map(8 * GIB, "rw-s", "/dev/zero (deleted)", dev="00:01", inode=1026)
    p.map(PAGE * 7, "rw-s", "/dev/shm/PostgreSQL.1804289383", dev="00:1a")
    p.map(PAGE, "rw-s", "/SYSV0052e2c1 (deleted)", dev="00:01", inode=0x8000)


@listing("ordinary-java")
def _(p):
    jvm(p)
    p.arenas(14)
    p.stacks(44, 1008 * KIB, 4 * PAGE)
    for k in range(30):
        p.map(p.chance.randrange(2, 900) * PAGE, "r--s", f"/opt/app/lib/module{k}.jar")


@listing("ordinary-node")
def _(p):
    heap_pages(node(p), 130)


@listing("ordinary-browser")
def _(p):
    """A renderer process: many libraries, some threads, a pool for a collector, memory shared with other processes."""
    p.start("/usr/lib/chromium/chromium", *CXX, *(f"libplatform{k}.so.0" for k in range(110)), text=0xA000000, heap=2 * MIB)
    for _ in range(90):
        p.align(256 * KIB)
        p.skip(512 * KIB)
        p.map(256 * KIB)
    p.align(GIB)
    for size, perms in [(3, "---p"), (2, "rw-p"), (59, "---p"), (7, "rw-p"), (400, "---p")]:
        p.map(size * MIB, perms)
    p.stacks(24, 8 * MIB)
    for k in range(60):
        p.map(p.chance.randrange(1, 200) * PAGE, "rw-s", f"/dev/shm/.org.chromium.Chromium.{k:06x} (deleted)", dev="00:1a")


@listing("ordinary-science")
def _(p):
    p.start("/usr/bin/python3.11", *CXX, "libopenblas-r0.3.21.so", "libgfortran.so.5.0.0", text=0x2AD000, heap=300 * MIB)
    p.libraries(*(f"_part{k}.cpython-311-x86_64-linux-gnu.so" for k in range(170)), folder="/usr/lib/python3/dist-packages/scipy/")
    p.locale()
    p.stacks(64, 8 * MIB)
    p.arenas(9)


@listing("ordinary-pool-of-threads")
def _(p):
    """Two hundred threads in a server of its kind; 0.6 % of the limit."""
    p.start("/usr/sbin/mariadbd", *CXX, "libssl.so.3", "libcrypto.so.3", "libaio.so.1.0.1", "liburing.so.2.3", heap=60 * MIB)
    for _ in range(20):
        p.map(2 * PAGE, "rw-s", "/[aio] (deleted)", dev="00:12", inode=p.chance.randrange(90000))
    p.map(8 * GIB)
    p.arenas(16)
    p.stacks(60, 292 * KIB)


@listing("ordinary-virtual-machine")
def _(p):
    p.start("/usr/bin/qemu-system-x86_64", *CXX, *(f"libqemu-dep{k}.so.1" for k in range(130)), text=0x600000, heap=90 * MIB)
    p.align(GIB)
    p.map(16 * GIB)
    p.stacks(22, 8 * MIB)
    p.stacks(64, MIB)
    p.arenas(9)
