"""Programs in C, C++ and Rust, compiled here."""

from .running import LIB, Start, program

DECAY = "dirty_decay_ms:0,muzzy_decay_ms:0"
# Shows jemalloc that overcommit is forbidden, without a change of the machine's setting.
NO_OVERCOMMIT = 'mount --bind forbidden /proc/sys/vm/overcommit_memory && exec "$@"'


@program("run-threads", "gcc")
def _(room):
    return Start([room.compiled("threads.c"), 3000, 0])


@program("run-threads-small-stacks", "gcc")
def _(room):
    return Start([room.compiled("threads.c"), 5000, 64])


@program("run-threads-musl", "musl-tools")
def _(room):
    return Start([room.compiled("threads.c", by="musl-gcc"), 2000, 0])


@program("run-threads-mimalloc", "gcc", "libmimalloc2.0")
def _(room):
    return Start([room.compiled("threads.c"), 2500, 1024], env={"LD_PRELOAD": LIB + "libmimalloc.so.2.0"})


@program("run-threads-jemalloc", "gcc", "libjemalloc2")
def _(room):
    return Start([room.compiled("threads.c"), 1800, 256], env={"LD_PRELOAD": LIB + "libjemalloc.so.2"})


@program("run-threads-rust")
def _(room):
    return Start([room.compiled("threads.rs"), 1200])


@program("run-unjoined", "gcc")
def _(room):
    return Start([room.compiled("unjoined.c"), 2500])


@program("run-arenas", "gcc")
def _(room):
    return Start([room.compiled("arenas.c"), 160])


@program("run-coroutines", "gcc")
def _(room):
    return Start([room.compiled("coroutines.c"), 4000, 1024])


@program("run-coroutines-8m", "gcc")
def _(room):
    return Start([room.compiled("coroutines.c"), 1500, 8192])


@program("run-fibers-boost", "g++", "libboost-fiber-dev", "libboost-context-dev")
def _(room):
    return Start([room.compiled("fibers.cpp", "-lboost_fiber", "-lboost_context"), 3000])


@program("run-fence", "gcc", "electric-fence")
def _(room):
    return Start([room.compiled("small.c"), 4000], env={"LD_PRELOAD": "/usr/lib/libefence.so.0.0"})


@program("run-jemalloc-no-overcommit", "gcc", "libjemalloc2")
def _(room):
    room.write("forbidden", "2")
    return Start(["unshare", "-m", "sh", "-c", NO_OVERCOMMIT, "sh", "env", f"LD_PRELOAD={LIB}libjemalloc.so.2", f"MALLOC_CONF={DECAY}",
                  room.compiled("blocks.c"), 12000])


@program("run-jemalloc-usual", "gcc", "libjemalloc2")
def _(room):
    return Start([room.compiled("blocks.c"), 12000], env={"LD_PRELOAD": LIB + "libjemalloc.so.2", "MALLOC_CONF": DECAY})


@program("run-holes", "gcc")
def _(room):
    return Start([room.compiled("holes.c"), 9000])


@program("run-blocks-mapped", "gcc")
def _(room):
    return Start([room.compiled("blocks.c"), 9000], env={"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4096:glibc.malloc.mmap_max=1000000"})


@program("run-locked", "gcc")
def _(room):
    return Start([room.compiled("pieces.c"), 3000, "lock"])


@program("run-huge-advice", "gcc")
def _(room):
    return Start([room.compiled("pieces.c"), 2400, "huge"])


@program("run-dump-excluded", "gcc")
def _(room):
    return Start([room.compiled("pieces.c"), 3600, "dump"])


@program("run-write-tracking", "gcc")
def _(room):
    return Start([room.compiled("pieces.c"), 5000, "track"])


@program("run-barrier-boehm", "gcc", "libgc-dev")
def _(room):
    return Start([room.compiled("collector.c", "-lgc"), 60000])


@program("run-shm-system-v", "gcc")
def _(room):
    return Start([room.compiled("shared.c"), 2000, "system-v"])


@program("run-shm-memfd", "gcc")
def _(room):
    return Start([room.compiled("shared.c"), 3000, "memfd"])


@program("run-shm-unlinked", "gcc")
def _(room):
    return Start([room.compiled("shared.c"), 2600, "posix"])


@program("run-rings", "gcc", "liburing-dev")
def _(room):
    return Start([room.compiled("rings.c", "-luring"), 900])


@program("run-secrets", "gcc", "libsodium-dev")
def _(room):
    return Start([room.compiled("secrets.c", "-lsodium"), 700])


@program("run-low-full", "gcc")
def _(room):
    return Start([room.compiled("low.c")])


@program("run-reservations-full", "gcc")
def _(room):
    return Start([room.compiled("reserve.c"), 65536])


@program("run-32-bit-full", "gcc-multilib")
def _(room):
    return Start([room.compiled("reserve.c", "-m32"), 4])
