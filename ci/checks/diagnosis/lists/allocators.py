"""Lists whose mappings an allocator makes, and lists in which an allocator is loaded but makes few."""

from .layout import GIB, KIB, MIB, PAGE, listing
from .stacks import CXX, jvm


@listing("arenas-glibc")
def _(p):
    p.start("/opt/hub/bin/hubd", *CXX, "libssl.so.3", "libcrypto.so.3", heap=70 * MIB)
    p.arenas(9500, ours=True)
    p.stacks(600, 8 * MIB)


@listing("arenas-java")
def _(p):
    """A virtual machine on a host with many processors: eight arenas each, of several heaps."""
    jvm(p)
    p.stacks(400, 1008 * KIB, 4 * PAGE)
    p.arenas(4200, ours=True)


def decommitted(p, pairs, ours=True, smallest=1, biggest=60):
    """Extents of jemalloc or its like: used and given up runs of pages of any size."""
    for _ in range(pairs):
        p.map(p.chance.randrange(smallest, biggest) * PAGE, "---p", ours=ours)
        p.map(p.chance.choice([1, 2, 4, 5, 8, 10, 16, 20, 28, 64]) * PAGE, ours=ours)


@listing("jemalloc-mixed-sizes")
def _(p):
    p.start("/usr/bin/redis-server", "libjemalloc.so.2", "libssl.so.3", "libcrypto.so.3", "libsystemd.so.0.35.0", *CXX)
    p.stacks(5, 8 * MIB)
    p.align(2 * MIB)
    decommitted(p, 30000)


@listing("jemalloc-one-size")
def _(p):
    """A cache whose values have one size class: the pairs are alike, as stacks are."""
    p.start("/usr/sbin/varnishd", "libjemalloc.so.2", "libvarnishapi.so.3.0.0", "libpcre2-8.so.0.11.2", "libm.so.6")
    p.stacks(200, 56 * KIB)
    p.align(2 * MIB)
    for _ in range(31000):
        p.map(12 * KIB, "---p", ours=True)
        p.map(20 * KIB, ours=True)


@listing("decommit-static")
def _(p):
    """The allocator is linked into the program; nothing names it."""
    p.start("/opt/kv/bin/store", "libm.so.6", "libgcc_s.so.1", text=0x5000000)
    p.stacks(40, 2 * MIB)
    p.align(8 * MIB)
    decommitted(p, 26000)


@listing("jemalloc-extents-advised", "smaps")
def _(p):
    """Equal permissions, one extent with the advice to use huge pages and the next with the advice not to."""
    p.start("/opt/kv/bin/tile", "libjemalloc.so.2", *CXX)
    p.align(2 * MIB)
    for k in range(3200):
        p.map(p.chance.randrange(1, 6) * 2 * MIB, flags="hg" if k % 2 else "nh", ours=True)


@listing("fence-efence")
def _(p):
    p.start("/srv/build/parser", "libefence.so.0.0", "libm.so.6", text=0x40000)
    for _ in range(20000):
        p.map(PAGE, "---p", ours=True)
        p.map(p.chance.choice([1, 1, 1, 1, 2, 3]) * PAGE, ours=True)


@listing("fence-scudo")
def _(p):
    p.start("/system/bin/mediaprovider", text=0x20000)
    p.libraries("libc.so", "libmedia.so", "libutils.so", "libbinder.so", folder="/system/lib64/")
    p.align(GIB)
    p.map(240 * MIB, name="[anon:scudo:primary]")
    p.stacks(20, 0xFC000)
    for _ in range(6500):
        p.map(PAGE, "---p", name="[anon:scudo:secondary]", ours=True)
        p.map(p.chance.randrange(17, 90) * PAGE, name="[anon:scudo:secondary]", ours=True)


@listing("fence-hardened")
def _(p):
    """A hardened allocator: each slab and each large allocation has a guard of random size."""
    p.start("/usr/lib/browser/content", "libhardened_malloc.so", *CXX, "libX11.so.6.4.0", "libgtk-3.so.0.2406.32")
    p.stacks(70, 8 * MIB)
    p.align(GIB)
    for _ in range(25000):
        p.map(p.chance.choice([1, 2, 4, 8]) * PAGE, "---p", ours=True)
        p.map(p.chance.choice([1, 1, 1, 2, 4]) * PAGE, ours=True)


@listing("fence-sampled")
def _(p):
    """A sampling guard allocator (one allocation in some thousands): a fixed pool of 512 slots. That is ordinary."""
    p.start("/opt/web/bin/render", *CXX, "libnss3.so", "libnspr4.so")
    p.stacks(30, 8 * MIB)
    for _ in range(200):
        p.map(PAGE, "---p")
        p.map(PAGE)
    p.map(800 * KIB, "---p")


@listing("secrets-guarded", "smaps")
def _(p):
    """Keys of a messaging server, each by libsodium's sodium_malloc: locked, not dumped, between two guards."""
    p.start("/opt/relay/bin/relayd", "libsodium.so.23.3.0", *CXX)
    p.stacks(12, 8 * MIB)
    for _ in range(2600):
        p.map(PAGE, "---p", ours=True)
        p.map(PAGE, flags="lo dd", ours=True)
        p.map(PAGE, "---p", ours=True)
        p.map(PAGE, "r--p", ours=True)


@listing("holes-after-free")
def _(p):
    """Big buffers that were mapped one by one, and every second one of which has been unmapped."""
    p.start("/srv/import/bin/loader", *CXX, "libpq.so.5.15", heap=400 * MIB)
    p.stacks(4, 8 * MIB)
    for _ in range(22000):
        p.skip(p.chance.randrange(33, 200) * PAGE)
        p.map(p.chance.randrange(33, 120) * PAGE, ours=True)


@listing("holes-small")
def _(p):
    p.start("/usr/bin/python3.11", "libexpat.so.1.8.10", "libz.so.1.2.13", "libm.so.6", text=0x2AD000, heap=3 * MIB)
    p.locale()
    for _ in range(58000):
        p.map(2 * PAGE, ours=True)
        p.skip(2 * PAGE)


@listing("tcmalloc-at-rest")
def _(p):
    p.start("/usr/bin/ceph-mon", "libtcmalloc.so.4.5.9", *CXX, "librocksdb.so.7.8", "libsnappy.so.1.1.9", heap=180 * MIB)
    p.libraries(*(f"ceph/libpart{k}.so.2" for k in range(14)))
    for _ in range(26):
        p.map(p.chance.randrange(8, 800) * 8 * KIB)
        p.skip(p.chance.randrange(1, 9) * MIB)
    p.stacks(29, 8 * MIB)


@listing("reservation-partly-committed")
def _(p):
    """Address space reserved by an emulator of another system's interface, of which parts are committed one by one."""
    p.start("/opt/wine/bin/wine64-preloader", "libX11.so.6.4.0", "libfreetype.so.6.18.3", text=0x4000)
    p.libraries("ntdll.so", "win32u.so", "winex11.so", folder="/opt/wine/lib/wine/x86_64-unix/")
    start = 0x180000000
    for _ in range(6000):
        used, rest = p.chance.randrange(1, 40) * 16 * PAGE, p.chance.randrange(1, 60) * 16 * PAGE
        p.put(start, used, ours=True)
        p.put(start + used, rest, "---p", ours=True)
        start += used + rest


@listing("names-differ")
def _(p):
    """An allocator that gives each of its blocks a name of its own; neighbours are equal otherwise."""
    p.start("/usr/bin/compositor", *CXX, "libwayland-server.so.0.21.0")
    for k in range(5200):
        p.map(p.chance.randrange(1, 20) * PAGE, name=f"[anon:surface-{k:05}]", ours=True)


@listing("equal-neighbours", "smaps")
def _(p):
    """Neighbours that differ in nothing the list shows: they were filled before they became neighbours."""
    p.start("/usr/bin/solver", *CXX, "libgmp.so.10.4.1", "libmpfr.so.6.2.0")
    for _ in range(4100):
        p.map(p.chance.randrange(1, 9) * PAGE, ours=True)
