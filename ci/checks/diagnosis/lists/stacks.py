"""Lists with many stacks: of threads, and of coroutines, which look like them."""

from .layout import GIB, KIB, MIB, PAGE, listing

CXX = ["libstdc++.so.6.0.30", "libm.so.6", "libgcc_s.so.1"]


@listing("threads-8m")
def _(p):
    p.start("/opt/gateway/bin/gatewayd", *CXX, "libssl.so.3", "libcrypto.so.3", heap=31 * MIB)
    p.arenas(64)
    p.stacks(32000, 8 * MIB, ours=True)


@listing("threads-musl")
def _(p):
    p.start("/usr/local/bin/collector", "libcrypto.so.3", "libz.so.1.2.13", musl=True)
    p.stacks(4000, 0x23000, 2 * PAGE, ours=True)


@listing("threads-rust")
def _(p):
    p.start("/usr/bin/indexer", "libgcc_s.so.1")
    for _ in range(2500):
        p.map(2 * MIB, ours=True)
        p.map(PAGE, "---p", ours=True)
        p.map(3 * PAGE, ours=True)
        p.map(PAGE, "---p", ours=True)


def jvm(p, heap=4 * GIB):
    """A Java virtual machine at rest."""
    p.start("/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "libz.so.1.2.13", "libm.so.6", text=PAGE * 2)
    home = "/usr/lib/jvm/java-17-openjdk-amd64/lib/"
    p.elf(home + "server/libjvm.so", 0xF00000, 0x380000, 0x37000, 0x58000)
    p.libraries("libjli.so", "libjava.so", "libjimage.so", "libnio.so", "libnet.so", "libzip.so", folder=home)
    p.map(0x8000, name="/tmp/hsperfdata_app/4711", perms="rw-s")
    p.map(130 * MIB, "r--s", home + "modules")
    p.align(MIB)
    for size, perms in [(37, "---p"), (7, "rwxp"), (69, "---p"), (3, "rwxp"), (117, "---p"), (2, "rwxp")]:
        p.map(size * MIB, perms)
    for size, perms in [(200, "---p"), (55, "rw-p"), (8, "---p"), (2, "rw-p"), (31, "---p"), (1, "rw-p")]:
        p.map(size * PAGE * 16, perms)
    p.put(0x700000000 - heap % (4 * GIB), heap // 4)
    p.put(0x700000000 - heap % (4 * GIB) + heap // 4, heap - heap // 4, "---p")
    p.put(0x800000000, 0xBF0000, "rw-p", home + "server/classes.jsa", offset=0x1000)
    p.put(0x801000000, 0x400000)
    p.put(0x801400000, 0x3EC00000, "---p")
    return p


@listing("threads-java-hs-err", "hs_err")
def _(p):
    jvm(p)
    p.arenas(60)
    p.stacks(15900, 1008 * KIB, 4 * PAGE, ours=True)
    p.stacks(40, 1016 * KIB, PAGE)


@listing("threads-java-256k")
def _(p):
    jvm(p)
    p.stacks(30, 1016 * KIB, PAGE)
    p.arenas(24)
    p.stacks(12000, 240 * KIB, 4 * PAGE, ours=True)


@listing("threads-go-with-c")
def _(p):
    p.start("/usr/local/bin/resolver", "libresolv.so.2", "libsqlite3.so.0.8.6")
    p.put(0xC000000000, 0x1C00000)
    p.put(0xC001C00000, 0x2400000, "---p")
    for size, perms in [(0x40000, "rw-p"), (0x1FFC0000, "---p"), (0x1000, "rw-p"), (0x1FF7F000, "---p"), (0x80000, "rw-p")]:
        p.map(size, perms)
    p.arenas(32)
    p.stacks(1800, 8 * MIB, ours=True)


@listing("threads-dotnet")
def _(p):
    p.start("/usr/share/dotnet/dotnet", *CXX, "libicuuc.so.72.1", "libicudata.so.72.1", "libssl.so.3")
    p.libraries("libcoreclr.so", "libclrjit.so", "System.Private.CoreLib.dll", "libSystem.Native.so", folder="/usr/share/dotnet/shared/8.0.1/")
    for k in range(160):
        p.map(64 * KIB, "rw-s", "/memfd:doublemapper (deleted)", offset=k * 0x10000, dev="00:01", inode=2051)
        p.map(64 * KIB, "r-xs", "/memfd:doublemapper (deleted)", offset=0x400000 + k * 0x20000, dev="00:01", inode=2051)
    p.map(256 * GIB, "---p")
    p.map(90 * MIB)
    p.stacks(3000, 1536 * KIB, ours=True)


@listing("threads-boost-loaded")
def _(p):
    """Boost's coroutines are linked, but these are threads of the default size; the arenas show that they are many."""
    p.start("/srv/quote/bin/quoted", *CXX, "libboost_context.so.1.74.0", "libboost_coroutine.so.1.74.0", "libboost_thread.so.1.74.0")
    p.arenas(128)
    p.stacks(5200, 8 * MIB, ours=True)


@listing("threads-mimalloc-loaded")
def _(p):
    p.start("/opt/render/bin/farm", *CXX, "libmimalloc.so.2.0", "libgomp.so.1.0.0")
    p.align(GIB)
    p.map(GIB)
    p.skip(64 * MIB)
    p.stacks(9000, MIB, ours=True)


@listing("threads-android")
def _(p):
    """Leaked threads of an Android application: the C library names the stacks."""
    p.start("/system/bin/app_process64", text=0x8000)
    p.libraries("libart.so", "libc.so", "libandroid_runtime.so", "libhwui.so", folder="/system/lib64/")
    for name in ["main space", "large object space", "zygote space", "region space"]:
        p.map(64 * MIB, name=f"[anon:dalvik-{name}]")
        p.skip(PAGE)
    for k in range(2200):
        p.map(PAGE, "---p", ours=True)
        p.map(0xFC000, name=f"[anon:stack_and_tls:{4300 + k}]", ours=True)
        p.map(2 * PAGE, "---p", ours=True)
        p.map(8 * PAGE, name="[anon:thread signal stack]", ours=True)


@listing("threads-of-mixed-sizes")
def _(p):
    """A pool with 512 KiB and one with 2 MiB; an interpreter is loaded too."""
    p.start("/usr/sbin/mediaserver", *CXX, "libpython3.11.so.1.0", "libavcodec.so.59.37.100")
    p.arenas(48)
    for _ in range(900):
        p.stacks(2, 512 * KIB, ours=True)
        p.stacks(1, 2 * MIB, ours=True)


@listing("coroutines-boost")
def _(p):
    p.start("/srv/match/bin/matchd", *CXX, "libboost_fiber.so.1.74.0", "libboost_context.so.1.74.0", heap=12 * MIB)
    p.stacks(3, 8 * MIB)
    p.arenas(3)
    p.stacks(14000, 128 * KIB, ours=True)


@listing("coroutines-php")
def _(p):
    p.start("/usr/bin/php8.2", "libxml2.so.2.9.14", "libssl.so.3", "libcrypto.so.3", "libz.so.1.2.13", "libpcre2-8.so.0.11.2", heap=6 * MIB)
    p.locale()
    p.map(128 * MIB, "rw-s", "/dev/zero (deleted)", dev="00:01", inode=9)
    p.align(2 * MIB)
    p.map(6 * MIB)
    p.stacks(3000, 2 * MIB, ours=True)


@listing("coroutines-rpc")
def _(p):
    """An RPC framework whose requests run on M:N threads."""
    p.start("/srv/app/search/bin/ranker", *CXX, "libbrpc.so", "libprotobuf.so.32.0.12", "libgflags.so.2.2", heap=90 * MIB)
    p.arenas(16)
    p.stacks(18, 8 * MIB)
    p.stacks(20000, MIB, ours=True)


@listing("coroutines-ruby")
def _(p):
    p.start("/usr/bin/ruby3.1", "libruby-3.1.so.3.1.2", "libgmp.so.10.4.1", "libcrypt.so.1.1.0", text=0x1000, heap=22 * MIB)
    for _ in range(70):
        p.align(64 * KIB)
        p.map(p.chance.randrange(1, 16) * 64 * KIB)
        p.skip(16 * KIB)
    p.stacks(2, MIB)
    p.stacks(5000, 0x29000, ours=True)


@listing("coroutines-jemalloc-loaded")
def _(p):
    """jemalloc is loaded and has its usual few large extents; the pairs have one size, a power of two."""
    p.start("/opt/edge/bin/proxy", *CXX, "libjemalloc.so.2", "libboost_context.so.1.81.0")
    for size in [2, 8, 32, 64, 128]:
        p.align(2 * MIB)
        p.map(size * MIB)
        p.skip(3 * MIB)
    p.stacks(8, 8 * MIB)
    p.stacks(30000, 256 * KIB, ours=True)


@listing("coroutines-named")
def _(p):
    p.start("/usr/bin/simulator", *CXX, "libruntime.so.4")
    for _ in range(7000):
        p.map(60 * KIB, name="[anon:fiber stack]", ours=True)
        p.map(4 * KIB, "---p", name="[anon:fiber guard]", ours=True)
