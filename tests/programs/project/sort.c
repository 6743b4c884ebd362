/* Sorts entries by frequency, then by name. */
#include "words.h"

#include <stdlib.h>
#include <string.h>

static int by_count(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	if (x->seen != y->seen)
		return x->seen < y->seen ? 1 : -1;
	return strcmp(x->word, y->word);
}

void sort_entries(struct entry *entries, size_t count)
{
	qsort(entries, count, sizeof(*entries), by_count);
}
