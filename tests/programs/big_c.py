"""Writes a C file of more than 10,000 lines of varied code to standard output.

The code is what a compiler meets in real programs: structures, tables, loops over arrays, string
scanning, switches, floating point, recursion, calls between functions. Constants and shapes come
from a seeded generator, so that two runs write the same file and no two functions are alike.
usage: big_c.py [FUNCTIONS [SEED]]
"""

import random
import sys

HEAD = """\
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
"""


def table(dice, n):
    """A constant table and a search in it."""
    values = sorted(dice.sample(range(1_000_000), 24))
    rows = [", ".join(map(str, values[i : i + 6])) for i in range(0, 24, 6)]
    return (
        f"static const uint32_t table_{n}[] = {{\n"
        + "".join(f"\t{row},\n" for row in rows)
        + f"""}};

int f_{n}(int x)
{{
	size_t low = 0, high = sizeof(table_{n}) / sizeof(table_{n}[0]);
	uint32_t wanted = (uint32_t)x * {dice.randrange(3, 999, 2)}u % 1000000u;
	while (low < high) {{
		size_t middle = low + (high - low) / 2;
		if (table_{n}[middle] < wanted)
			low = middle + 1;
		else
			high = middle;
	}}
	return (int)low + {dice.randrange(100)};
}}
"""
    )


def matrix(dice, n):
    """Nested loops over doubles."""
    size = dice.randrange(6, 20)
    return f"""\
int f_{n}(int x)
{{
	double a[{size}][{size}], b[{size}][{size}], c[{size}][{size}];
	double trace = 0.0;
	for (int i = 0; i < {size}; i++) {{
		for (int j = 0; j < {size}; j++) {{
			a[i][j] = (double)((i * {dice.randrange(2, 50)} + j + x) % {dice.randrange(51, 99)});
			b[i][j] = sqrt((double)(i + j + {dice.randrange(1, 9)}));
			c[i][j] = 0.0;
		}}
	}}
	for (int i = 0; i < {size}; i++)
		for (int j = 0; j < {size}; j++)
			for (int k = 0; k < {size}; k++)
				c[i][j] += a[i][k] * b[k][j];
	for (int i = 0; i < {size}; i++)
		trace += c[i][i];
	return (int)fmod(trace, {dice.randrange(1000, 9999)}.0);
}}
"""


def scanner(dice, n):
    """A state machine over a string."""
    words = dice.sample(["alpha", "beta", "gamma", "delta", "omega", "kappa", "sigma", "theta"], 4)
    tests = "\n".join(
        f"""\
		case {i}:
			state = strncmp(at, "{word}", {len(word)}) == 0 ? {(i + 1) % 4} : {dice.randrange(4)};
			found += state == {i} ? {dice.randrange(1, 9)} : {dice.randrange(10, 20)};
			break;"""
        for i, word in enumerate(words)
    )
    return f"""\
int f_{n}(int x)
{{
	static const char text[] = "{' '.join(dice.choices(words, k=12))}";
	unsigned state = (unsigned)x % 4u;
	int found = 0;
	for (const char *at = text; *at; at++) {{
		if (*at == ' ') {{
			found ^= {dice.randrange(256)};
			continue;
		}}
		switch (state) {{
{tests}
		}}
	}}
	return found;
}}
"""


def structure(dice, n):
    """A linked list of structures, built, turned round and summed."""
    fields = [("int32_t", "i"), ("uint64_t", "u"), ("double", "d"), ("int16_t", "s"), ("uint8_t", "b")]
    chosen = dice.sample(fields, 3)
    declared = "\n".join(f"\t{kind} {name};" for kind, name in chosen)
    filled = "\n".join(
        f"\t\tnode->{name} = ({kind})(x * {dice.randrange(3, 40)} + i * {dice.randrange(3, 40)});"
        for kind, name in chosen
    )
    summed = " + ".join(f"(int)node->{name}" for _, name in chosen)
    return f"""\
struct node_{n} {{
	struct node_{n} *next;
{declared}
}};

int f_{n}(int x)
{{
	struct node_{n} *head = NULL, *turned = NULL;
	int sum = 0;
	for (int i = 0; i < {dice.randrange(8, 64)}; i++) {{
		struct node_{n} *node = calloc(1, sizeof(*node));
		if (!node)
			break;
{filled}
		node->next = head;
		head = node;
	}}
	while (head) {{
		struct node_{n} *next = head->next;
		head->next = turned;
		turned = head;
		head = next;
	}}
	while (turned) {{
		struct node_{n} *node = turned;
		sum = sum * 31 + ({summed});
		turned = node->next;
		free(node);
	}}
	return sum;
}}
"""


def bits(dice, n):
    """A hash of rotations and multiplications, unrolled."""
    rounds = "\n".join(
        f"\th ^= h >> {dice.randrange(11, 33)};\n\th *= 0x{dice.getrandbits(64) | 1:016x}ull;\n"
        f"\th = (h << {shift}) | (h >> {64 - shift});"
        for shift in dice.sample(range(5, 59), 6)
    )
    return f"""\
int f_{n}(int x)
{{
	uint64_t h = (uint64_t)(uint32_t)x + 0x{dice.getrandbits(64):016x}ull;
{rounds}
	return (int)(h % {dice.randrange(1000, 100000)}u);
}}
"""


def recursion(dice, n):
    """A function that calls itself and an older one."""
    other = f"f_{dice.randrange(n)}(x - 1)" if n else "x"
    return f"""\
static int walk_{n}(int depth, int x)
{{
	if (depth <= 0)
		return x;
	if (x % {dice.randrange(2, 9)} == 0)
		return walk_{n}(depth - 2, x / 2 + {dice.randrange(1, 99)}) + 1;
	return walk_{n}(depth - 1, x * 3 + {dice.randrange(1, 99)}) ^ depth;
}}

int f_{n}(int x)
{{
	int deep = walk_{n}({dice.randrange(6, 20)}, x & 0xffff);
	return x > 0 ? deep + {other} : deep;
}}
"""


SHAPES = [table, matrix, scanner, structure, bits, recursion]


def main():
    functions = int(sys.argv[1]) if len(sys.argv) > 1 else 460
    dice = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print(HEAD)
    for n in range(functions):
        print(dice.choice(SHAPES)(dice, n))
    calls = "\n".join(f"\tsum = sum * 33u + (unsigned)f_{n}((int)(sum & 7u));" for n in range(functions))
    print(f"int main(void)\n{{\n\tunsigned sum = 1;\n{calls}\n\tprintf(\"%u\\n\", sum);\n\treturn 0;\n}}")


main()
