"""Forks 20 children that write to memory shared copy-on-write with their parent.

The parent touches 4 MiB first, so that every child begins with pages that two mappings share. Each
child writes to every third page of a part of its own and checks that it sees its own bytes there and
the parent's bytes elsewhere. Every fourth child forks once more, so that chains of three generations
exist. Exits with 1 if anyone saw a wrong byte.
"""

import mmap
import os
import sys

PAGE = 4096
PAGES = 1024
CHILDREN = 20


def child(memory, number):
    """Writes as child `number` and checks; returns the number of wrong bytes."""
    first = number * PAGES // CHILDREN
    last = (number + 1) * PAGES // CHILDREN
    for page in range(first, last, 3):
        memory[page * PAGE] = 100 + number
    wrong = 0
    for page in range(PAGES):
        mine = first <= page < last and (page - first) % 3 == 0
        expected = 100 + number if mine else page % 100
        wrong += memory[page * PAGE] != expected
    return wrong


def main():
    memory = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(PAGES):
        memory[page * PAGE] = page % 100

    running = []
    for number in range(CHILDREN):
        pid = os.fork()
        if pid == 0:
            wrong = child(memory, number)
            if number % 4 == 0:
                grandchild = os.fork()
                if grandchild == 0:
                    memory[number * PAGE] = 250
                    os._exit(memory[number * PAGE] != 250)
                wrong += os.waitpid(grandchild, 0)[1] != 0
            os._exit(wrong != 0)
        running.append(pid)
        # The parent writes too, while children share the page.
        memory[number * PAGE + 1] = number

    failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in running)
    for page in range(PAGES):
        failed += memory[page * PAGE] != page % 100
    print(f"{CHILDREN} children, {failed} failures")
    return failed != 0


sys.exit(main())
