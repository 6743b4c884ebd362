/* Brings the `top` most frequent entries to the front without sorting all of them. */
#include "words.h"

static void swap(struct entry *a, struct entry *b)
{
	struct entry keep = *a;
	*a = *b;
	*b = keep;
}

static void sink(struct entry *heap, size_t at, size_t count)
{
	for (size_t child; (child = at * 2 + 1) < count; at = child) {
		if (child + 1 < count && heap[child + 1].seen < heap[child].seen)
			child++;
		if (heap[at].seen <= heap[child].seen)
			return;
		swap(&heap[at], &heap[child]);
	}
}

void heap_top(struct entry *entries, size_t count, size_t top)
{
	if (top >= count)
		return;
	for (size_t i = top / 2 + 1; i-- > 0;)
		sink(entries, i, top);
	for (size_t i = top; i < count; i++) {
		if (entries[i].seen > entries[0].seen) {
			swap(&entries[0], &entries[i]);
			sink(entries, 0, top);
		}
	}
}
