"""Eight Python threads that map, write, move and unmap memory.

The interpreter's lock lets mostly one of them run at a time; what is tested is that calls of many
threads land in one address space in the right order.

usage: threads.py [SEED [SECONDS]]    (two seconds by default)
"""

import mmap
import random
import sys
import threading
import time

THREADS = 8
PAGE = 4096


def work(seed, until, done):
    """Keeps up to 32 mappings and does random things to them."""
    dice = random.Random(seed)
    held = []
    calls = 0
    while time.monotonic() < until:
        what = dice.randrange(5)
        if what <= 1 and len(held) < 32:
            held.append(mmap.mmap(-1, PAGE * dice.randrange(1, 64)))
        elif what == 2 and held:
            dice.choice(held)[0] = 1
        elif what == 3 and held:
            dice.choice(held).resize(PAGE * dice.randrange(1, 64))
        elif held:
            held.pop(dice.randrange(len(held))).close()
        calls += 1
    done.append(calls)


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    until = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 2.0)
    done = []
    threads = [
        threading.Thread(target=work, args=(seed * THREADS + number, until, done))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{len(done)} threads, {sum(done)} steps")
    return len(done) != THREADS


sys.exit(main())
