"""A program whose memory becomes thousands of mappings: it makes the pages of a reservation usable one by one,
in no order, and writes to each at once. README.md shows what `vmarea explain` says about it.
"""

import ctypes
import random
import time

PAGE = 4096
PAGES = 20000

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

PROT_NONE, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS = 0, 3, 0x22
reservation = libc.mmap(None, PAGE * PAGES, PROT_NONE, MAP_PRIVATE_ANONYMOUS, -1, 0)
pages = list(range(PAGES))
random.Random(1).shuffle(pages)
for page in pages:
    address = reservation + page * PAGE
    if libc.mprotect(address, PAGE, PROT_READ_WRITE) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    ctypes.memset(address, 1, 1)
print("ready", flush=True)
time.sleep(600)
