"""Lists whose failure is not one of number: the address space, or a part of it, is full, or none of that."""

from .layout import GIB, KIB, MIB, PAGE, TIB, listing
from .stacks import CXX


@listing("full-reservations")
def _(p):
    """A database reserves 1 TiB for each of its files; 124 of 128 TiB are used, by few mappings."""
    p.start("/opt/graph/bin/graphd", *CXX, "libssl.so.3", heap=20 * MIB)
    p.stacks(40, 8 * MIB)
    for k, start in enumerate(list(p.gaps(TIB))):
        if k % 3:
            p.put(start, TIB, "---p")
        else:
            p.put(start, TIB, "r--s", f"/var/lib/graph/shard{k:03}.mdb")


def program32(p, program, *libraries):
    """A process of 32 bits, whose addresses end at 4 GiB."""
    p.top = 0xF7FCF000
    p.elf(program, 0x40000, 0x20000, at=0x56555000)
    p.put(0x5663A000, 0x3A000, name="[heap]")
    p.put(0xFFFDD000, 0x21000, name="[stack]", flags="gd")
    folder = "/usr/lib/i386-linux-gnu/"
    p.elf(folder + "ld-linux.so.2", 0x23000, 0xC000, 0x1000, at=0xF7FD0000)
    p.elf(folder + "libc.so.6", 0x17A000, 0x85000, 0x1000, 0xA000)
    p.skip(PAGE)
    p.libraries(*libraries, folder=folder)


@listing("full-32-bit")
def _(p):
    """A program of 32 bits that has used its 4 GiB by 1,400 mappings of various kinds."""
    program32(p, "/opt/cad/bin/viewer", *CXX, "libGL.so.1.7.0", "libX11.so.6.4.0", *(f"libpart{k}.so" for k in range(60)))
    p.stacks(25, 8 * MIB)
    for start in list(p.gaps(4 * MIB, 0x08048000, 0xFF7D0000)):
        p.put(start, 4 * MIB - PAGE * p.chance.choice([1, 2, 9]))


@listing("full-32-bit-threads")
def _(p):
    """The stacks of 470 threads, 8 MiB each, fill the 4 GiB of a program of 32 bits: smaller stacks would do."""
    program32(p, "/usr/local/bin/legacyd", *CXX)
    for start in list(p.gaps(8 * MIB + PAGE, high=0xFF7D0000)):
        p.put(start, PAGE, "---p")
        p.put(start + PAGE, 8 * MIB)


@listing("low-2g-full")
def _(p):
    """A just-in-time compiler whose objects must lie below 2 GiB: that part is full, the rest is free."""
    p.start("/opt/game/bin/server", "libluajit-5.1.so.2.1.0", "libm.so.6", "libz.so.1.2.13", heap=2 * MIB)
    p.stacks(6, 8 * MIB)
    start = 0x10000
    while start < 0x7FF00000:
        size = min(p.chance.choice([1, 4, 9, 40, 130]) * 128 * KIB, 0x7FFFE000 - start)
        p.put(start, size, "r-xp" if p.chance.random() < 0.05 else "rw-p")
        start += size + PAGE


@listing("address-space-not-full")
def _(p):
    """A sanitizer's shadow of 20 TiB and a collector's reservations are large, and ordinary."""
    p.start("/srv/build/service", "libasan.so.8.0.0", *CXX)
    for low, high, perms in [(0x7FFF7000, 0x8FFF7000, "rw-p"), (0x8FFF7000, 0x2008FFF7000, "---p"), (0x2008FFF7000, 0x10007FFF8000, "rw-p")]:
        p.put(low, high - low, perms)
    for k in range(34):
        p.put(0x600000000000 + k * 0x1000000000, 64 * KIB * 16)
    p.stacks(12, 8 * MIB)


@listing("mixed-small")
def _(p):
    """A process with some of everything; nothing of it is most."""
    p.start("/opt/suite/bin/suited", *CXX, *(f"libsuite{k}.so.3" for k in range(44)), heap=40 * MIB)
    p.locale()
    p.stacks(110, 8 * MIB)
    p.arenas(80)
    for k in range(90):
        p.map(p.chance.randrange(1, 90) * PAGE, "r--s", f"/srv/suite/data/table{k}.idx")
    for _ in range(90):
        p.skip(3 * PAGE)
        p.map(p.chance.randrange(33, 90) * PAGE)
    p.map(GIB, "---p")
