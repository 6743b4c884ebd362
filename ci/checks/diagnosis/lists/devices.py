"""Lists with mappings of drivers and of the kernel, and those that advice to the kernel keeps apart."""

from .layout import KIB, MIB, PAGE, listing
from .stacks import CXX, jvm


@listing("driver-nvidia")
def _(p):
    p.start("/opt/ml/venv/bin/python3", *CXX, "libcuda.so.535.129.03", "libnvidia-ml.so.535.129.03", heap=900 * MIB)
    p.stacks(40, 8 * MIB)
    p.map(PAGE * 16, "---p")
    for k in range(22000):
        name, dev = [("/dev/nvidiactl", "00:05"), ("/dev/nvidia0", "00:05"), ("/dev/nvidia-uvm", "00:05")][k % 7 // 3]
        p.map(p.chance.choice([1, 16, 32, 512]) * PAGE, "rw-s", name, dev=dev, ours=True,
              offset=0 if name == "/dev/nvidiactl" else p.chance.randrange(1 << 18) * PAGE)


@listing("driver-amdgpu-game")
def _(p):
    """A game under an emulator: buffers of the graphics driver outnumber its own reservations by far."""
    p.start("/opt/wine/bin/wine64-preloader", "libX11.so.6.4.0", "libvulkan.so.1.3.239", "libdrm_amdgpu.so.1.0.0", text=0x4000)
    p.libraries("ntdll.so", "win32u.so", "winevulkan.so", folder="/opt/wine/lib/wine/x86_64-unix/")
    start = 0x7FFE0000
    for _ in range(700):
        used, rest = p.chance.randrange(1, 40) * 16 * PAGE, p.chance.randrange(1, 60) * 16 * PAGE
        p.put(start, used)
        p.put(start + used, rest, "---p")
        start += used + rest
    p.stacks(50, MIB)
    for _ in range(29000):
        p.map(p.chance.choice([16, 64, 256, 512]) * PAGE, "rw-s", "/dev/dri/renderD128", dev="00:06",
              offset=0x100000000 + p.chance.randrange(1 << 20) * PAGE, ours=True)


@listing("driver-i915")
def _(p):
    p.start("/usr/lib/xorg/Xorg", "libpixman-1.so.0.42.2", "libdrm_intel.so.1.0.0", "libepoxy.so.0.0.0", heap=60 * MIB)
    p.libraries("iris_dri.so", "swrast_dri.so", folder="/usr/lib/x86_64-linux-gnu/dri/")
    p.stacks(8, 8 * MIB)
    for k in range(38000):
        p.map(p.chance.choice([1, 4, 16, 64]) * PAGE, "rw-s", "anon_inode:i915.gem", offset=k * 64 * PAGE, dev="00:0e", inode=1063,
              ours=True)


@listing("rdma-buffers", "smaps")
def _(p):
    """Registered buffers of an interconnect library with fork support: each must not be copied on fork."""
    p.start("/opt/hpc/bin/solver", "libmpi.so.40.30.4", "libibverbs.so.1.14.44.0", "librdmacm.so.1.3.44.0", "libmlx5.so.1.24.44.0", heap=90 * MIB)
    p.map(PAGE, "-w-s", "/dev/infiniband/uverbs0", dev="00:06", offset=0x5000)
    p.stacks(4, 8 * MIB)
    for k in range(3300):
        p.map(p.chance.randrange(1, 40) * PAGE, flags="dc", ours=True)
        p.map(p.chance.randrange(1, 9) * PAGE, ours=True)


@listing("rdma-loaded-threads", "smaps")
def _(p):
    """The same libraries, and some registered buffers; but the many are stacks of threads."""
    p.start("/opt/hpc/bin/collector", "libmpi.so.40.30.4", "libibverbs.so.1.14.44.0", "libmlx5.so.1.24.44.0", heap=90 * MIB)
    p.map(PAGE, "-w-s", "/dev/infiniband/uverbs0", dev="00:06", offset=0x5000)
    for _ in range(40):
        p.map(16 * PAGE, flags="dc")
        p.map(2 * PAGE)
    p.arenas(60)
    p.stacks(3300, 8 * MIB, ours=True)


@listing("rings-io-uring")
def _(p):
    """A ring for each connection: two mappings, in some kernels' versions three."""
    p.start("/srv/proxy/bin/ringd", "liburing.so.2.3", *CXX)
    p.stacks(16, 8 * MIB)
    for k in range(7200):
        p.map(9 * PAGE, "rw-s", "anon_inode:[io_uring]", offset=0x10000000, dev="00:0e", inode=1063, ours=True)
        p.map(5 * PAGE, "rw-s", "anon_inode:[io_uring]", dev="00:0e", inode=1063, ours=True)


@listing("rings-perf")
def _(p):
    """A profiler: a buffer for each event on each of 192 processors."""
    p.start("/usr/bin/perf", "libelf-0.188.so", "libdw-0.188.so", text=0x400000, heap=30 * MIB)
    for _ in range(192 * 16):
        p.map(129 * PAGE, "rw-s", "anon_inode:[perf_event]", dev="00:0e", inode=1063, ours=True)


@listing("locked-pieces", "smaps")
def _(p):
    """A real-time program locks every block that its time-critical part touches, not the blocks between."""
    p.start("/opt/audio/bin/engine", *CXX, "libjack.so.0.1.0", "libasound.so.2.0.0", heap=12 * MIB)
    p.stacks(14, 8 * MIB)
    for _ in range(1900):
        p.map(p.chance.randrange(1, 30) * PAGE, flags="lo", ours=True)
        p.map(p.chance.randrange(1, 30) * PAGE, ours=True)


@listing("dump-excluded-pieces", "smaps")
def _(p):
    """A virtual machine for scripts excludes each of its arenas' free parts from core dumps."""
    p.start("/usr/bin/cached", *CXX, "libevent-2.1.so.7.0.1")
    p.stacks(9, 8 * MIB)
    for _ in range(2400):
        p.map(p.chance.randrange(8, 60) * PAGE, flags="dd", ours=True)
        p.map(p.chance.randrange(8, 60) * PAGE, ours=True)


@listing("huge-page-advice", "smaps")
def _(p):
    """A runtime's scavenger gives and takes back the advice to use huge pages for single chunks of its heap."""
    p.start("/usr/local/bin/gateway", text=0x1800000, heap=0)
    start = 0xC000000000
    for k in range(4600):
        size = p.chance.randrange(1, 4) * 4 * MIB // 2
        p.put(start, size, flags="nh" if k % 2 else "hg" if k % 6 == 0 else "", ours=True)
        start += size
    p.stacks(30, 8 * MIB)


@listing("write-tracking-snapshot")
def _(p):
    """A checkpointing library protects pages of one big array until they are written; half have been."""
    p.start("/opt/sim/bin/ocean", "libmpi.so.40.30.4", "libgfortran.so.5.0.0", "libckpt.so.1")
    p.stacks(8, 8 * MIB)
    for k in range(9700):
        p.map(p.chance.randrange(1, 5) * PAGE, "r--p" if k % 2 else "rw-p", ours=True)


@listing("java-large-direct-buffers")
def _(p):
    """A virtual machine with 60 threads and some hundred mapped regions of memory of its own: ordinary."""
    jvm(p)
    p.stacks(60, 1008 * KIB, 4 * PAGE)
    p.arenas(25)
    for _ in range(64):
        p.map(4 * MIB)
        p.skip(PAGE * 3)
