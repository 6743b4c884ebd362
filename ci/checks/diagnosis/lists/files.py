"""Lists with many mappings of files, of shared memory, and of files that were deleted."""

from .layout import GIB, KIB, MIB, PAGE, listing
from .stacks import CXX, jvm


def uuid(p):
    return f"{p.chance.randrange(1 << 88):022x}"


def segments(p, count, deleted=0):
    """A search index's segments, a few files each; `deleted` of the files are marked so."""
    marks = [True] * deleted + [False] * (count - deleted)
    p.chance.shuffle(marks)
    index, part = uuid(p), 0
    for k, mark in enumerate(marks):
        if k % 60 == 0:
            index, part = uuid(p), p.chance.randrange(5)
        end = ["cfs", "doc", "pos", "tim", "nvd", "dvd", "fdt", "kdd"][k % 8]
        name = f"/var/lib/search/nodes/0/indices/{index}/{part}/index/_{k:x}.{end}" + " (deleted)" * mark
        p.map(p.chance.randrange(1, 3000) * PAGE, "r--s", name, ours=mark or not deleted)
        if k % 50 == 0:
            p.skip(2 * MIB)


@listing("files-search-index", "hs_err")
def _(p):
    """The virtual machine ends with: Map failed; too many shards for one node."""
    p.header = "-Xms31g -Xmx31g -XX:+UseG1GC search.Bootstrap"
    jvm(p)
    p.stacks(220, 1008 * KIB, 4 * PAGE)
    segments(p, 61000)


@listing("files-search-index-deleted")
def _(p):
    """Merged segments' files were deleted, but readers that nobody closes keep them mapped."""
    jvm(p)
    p.stacks(150, 1008 * KIB, 4 * PAGE)
    segments(p, 48000, 41500)


@listing("files-log-segments")
def _(p):
    """A broker: two small index files a segment, in a folder for each partition."""
    jvm(p)
    p.stacks(90, 1008 * KIB, 4 * PAGE)
    for k in range(24000):
        for end in ("index", "timeindex"):
            folder = f"/srv/broker/logs/{('orders', 'events', 'audit')[k % 3]}-{k % 640}"
            p.map(10 * MIB if k % 30 == 0 else p.chance.randrange(1, 40) * PAGE, "rw-s", f"{folder}/{k * 9176:020d}.{end}", ours=True)


@listing("files-time-series")
def _(p):
    p.start("/usr/local/bin/metricsdb", text=0x2800000, heap=0)
    p.put(0xC000000000, 0x24000000)
    for size, perms in [(0x40000, "rw-p"), (0x1FFC0000, "---p"), (0x80000, "rw-p")]:
        p.map(size, perms)
    for k in range(3700):
        p.map(p.chance.randrange(20, 400) * MIB, "r--s", f"/data/{k:026d}/chunks/{1:06d}", ours=True)
        p.map(p.chance.randrange(2, 90) * MIB, "r--s", f"/data/{k:026d}/index", ours=True)


@listing("files-columnar")
def _(p):
    """A data frame library maps a file for each column of each day."""
    p.start("/usr/bin/python3.11", *CXX, "libarrow.so.1500.0.2", text=0x2AD000, heap=900 * MIB)
    p.locale()
    p.stacks(16, 8 * MIB)
    for day in range(700):
        for column in ("open", "high", "low", "close", "volume", "trades", "vwap"):
            p.map(2 * MIB + 9 * PAGE, "r--p", f"/mnt/nas/ticks/d{day:05}/{column}.bin", ours=True, dev="00:35")


@listing("files-private-views")
def _(p):
    """A database that maps each of its files twice: shared, and privately for its journal."""
    p.start("/usr/bin/documentd", *CXX, "libssl.so.3", text=0x1900000, heap=20 * MIB)
    p.stacks(60, MIB)
    for k in range(4000):
        name = f"/var/lib/documents/tenant{k // 9:04}.{k % 9}"
        p.map(64 * MIB << min(k % 9, 2), "rw-s", name, ours=True)
        p.map(64 * MIB << min(k % 9, 2), "rw-p", name, ours=True)


@listing("files-one-in-windows")
def _(p):
    """One large data file, of which the program maps a window wherever it needs one."""
    p.start("/opt/geo/bin/tiled", *CXX, "libgdal.so.32.3.6.2", "libproj.so.25.9.1.1", heap=70 * MIB)
    p.stacks(20, 8 * MIB)
    for _ in range(41000):
        p.map(MIB, "r--s", "/srv/tiles/planet.mbtiles", offset=p.chance.randrange(1 << 20) * MIB, ours=True)


@listing("files-windows-writable")
def _(p):
    """The same as written by a queue: blocks of one file, mapped as they are used, in no order; `mem` is its name."""
    jvm(p)
    p.stacks(40, 1008 * KIB, 4 * PAGE)
    for _ in range(17500):
        p.map(256 * KIB, "rw-s", "/var/spool/queue/memory.cq4", offset=p.chance.randrange(1 << 18) * 256 * KIB, ours=True)
        if p.chance.random() < 0.4:
            p.skip(256 * KIB)


@listing("sandbox-memory-file")
def _(p):
    """A sandbox that runs another program keeps all of its memory in one memory file, pieces of which it maps."""
    p.start("/usr/local/bin/runsc", text=0x1600000, heap=0)
    p.put(0xC000000000, 0x4000000)
    for _ in range(12000):
        p.map(p.chance.randrange(1, 64) * PAGE, p.chance.choice(["rw-s", "r-xs", "r--s"]), "/memfd:runsc-memory (deleted)",
              offset=p.chance.randrange(1 << 21) * PAGE, dev="00:01", inode=77, ours=True)


@listing("shm-tensors")
def _(p):
    """A data loader's tensors, one object each, whose name is removed at once, as is usual; all are in use."""
    p.start("/opt/conda/bin/python3.10", "libcudart.so.11.8.89", *CXX, text=0x200000, heap=3 * GIB)
    p.libraries("libtorch_cpu.so", "libtorch_python.so", "libc10.so", folder="/opt/conda/lib/python3.10/site-packages/torch/lib/")
    p.stacks(24, 8 * MIB)
    for k in range(31000):
        p.map(p.chance.choice([1, 1, 2, 37, 148]) * PAGE, "rw-s", f"/dev/shm/torch_9107_{p.chance.randrange(1 << 31)}_{k} (deleted)",
              dev="00:1a", ours=True)


@listing("shm-surfaces")
def _(p):
    """A compositor whose clients send a memory file for each buffer."""
    p.start("/usr/bin/shell", *CXX, "libwayland-server.so.0.21.0", "libEGL.so.1.1.0", "libpixman-1.so.0.42.2")
    p.stacks(11, 8 * MIB)
    for k in range(9400):
        p.map(p.chance.randrange(1, 2000) * PAGE, "rw-s", "/memfd:wl-shm (deleted)", dev="00:01", inode=4000 + k, ours=True)


@listing("shm-system-v")
def _(p):
    p.start("/opt/its/bin/dispatcher", *CXX, "libodbc.so.2.0.0")
    for k in range(3900):
        p.map(p.chance.choice([64, 256, 1024]) * KIB, "rw-s", f"/SYSV{0x4D000000 + k:08x}" + " (deleted)" * (k % 3 == 0),
              dev="00:01", inode=32768 + k, ours=True)


@listing("shm-live-names")
def _(p):
    """A robot's middleware: a named object for each publisher and reader, none deleted."""
    p.start("/opt/robot/lib/navigation/planner", *CXX, "libfastrtps.so.2.6.6", "librclcpp.so", "librcl.so")
    p.stacks(60, 8 * MIB)
    for k in range(5600):
        p.map(p.chance.choice([27, 129, 545]) * 4 * KIB, "rw-s", f"/dev/shm/fastrtps_{p.chance.randrange(1 << 60):015x}",
              dev="00:19", ours=True)


@listing("hugepages-one-file-each")
def _(p):
    """A packet processor: a file of hugetlbfs for each huge page of 2 MiB, in no physical order."""
    p.start("/usr/bin/dpdk-testpmd", "librte_eal.so.23.0", "librte_ethdev.so.23.0", "libnuma.so.1.0.0", "libibverbs.so.1.14.44.0")
    p.stacks(6, 8 * MIB)
    for k in range(16384):
        p.put(0x100000000 + 0x1000000000 + k * 2 * MIB, 2 * MIB, "rw-s", f"/dev/hugepages/rtemap_{k * 5 % 16384}", dev="00:2e", flags="ht",
              ours=True)


@listing("one-large-file")
def _(p):
    """A key-value store that maps one file of 1 TiB once: ordinary."""
    p.start("/usr/sbin/slapd", "libldap-2.5.so.0.1.8", "libsasl2.so.2.0.25", "liblmdb.so.0.0.0", heap=50 * MIB)
    p.map(1 << 40, "r--s", "/var/lib/ldap/data.mdb")
    p.map(64 * KIB, "rw-s", "/var/lib/ldap/lock.mdb")
    p.locale()
    p.stacks(17, 8 * MIB)


@listing("fonts-and-icons")
def _(p):
    """A desktop's panel: libraries, fonts, icon caches and catalogues of messages, some replaced by an update."""
    p.start("/usr/bin/panel", *CXX, *(f"libdesktop-part{k}.so.0.{k}" for k in range(160)), heap=40 * MIB)
    p.locale()
    for k in range(70):
        p.map(p.chance.randrange(10, 300) * PAGE, "r--p", f"/usr/share/fonts/opentype/set{k}.otf" + " (deleted)" * (k % 12 == 0))
    for k in range(38):
        p.map(p.chance.randrange(1, 30) * PAGE, "r--p", f"/usr/share/locale-langpack/de/LC_MESSAGES/part{k}.mo")
        p.map(p.chance.randrange(1, 900) * PAGE, "r--s", f"/usr/share/icons/theme{k}/icon-theme.cache")
    p.stacks(9, 8 * MIB)
    for _ in range(12):
        p.map(512 * KIB, "rw-s", "/memfd:gdk-wayland (deleted)", dev="00:01", inode=p.chance.randrange(900))
