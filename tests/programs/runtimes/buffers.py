"""Buffers that grew in turn, so that realloc moved them with mremap; random bytes are checked and written again.

usage: buffers.py SECONDS [BUFFERS]
"""

import random
import sys
import time

dice = random.Random(7)
many = int((sys.argv[2:] or ["3000"])[0])
buffers = [bytearray() for _ in range(many)]
for _ in range(6):
    for number in dice.sample(range(many), many):
        buffers[number] += bytes([number % 251]) * 40_000
finish = time.monotonic() + float(sys.argv[1])
while time.monotonic() < finish:
    number = dice.randrange(many)
    at = dice.randrange(len(buffers[number]))
    if buffers[number][at] != number % 251:
        sys.exit(f"buffer {number}, byte {at}")
    buffers[number][at] = number % 251
print("every byte was right")
