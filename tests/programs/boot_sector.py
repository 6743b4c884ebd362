"""Writes a boot sector, which writes to half a megabyte again and again and then ends its machine.

It ends by the port of QEMU's isa-debug-exit, which turns the value 16 into the exit status 33.
"""

import sys

CODE = bytes.fromhex(
    "fa31c0"  # cli; xor ax, ax
    "b91000"  # mov cx, 16: number of rounds
    "bb0010"  # round: mov bx, 0x1000: segments up to 0x9000
    "8ec3"  # segment: mov es, bx
    "31ff"  # xor di, di
    "51b90080f3ab59"  # push cx; mov cx, 0x8000; rep stosw; pop cx
    "81c30010"  # add bx, 0x1000
    "81fb0090"  # cmp bx, 0x9000
    "75eb"  # jne segment
    "40e2e5"  # inc ax; loop round
    "b010e6f4"  # mov al, 16; out 0xf4, al
    "ebfe"  # jmp .
)
sys.stdout.buffer.write(CODE.ljust(510, b"\0") + b"\x55\xaa")
