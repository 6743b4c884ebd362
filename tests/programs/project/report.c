/* Prints the most frequent words, one per line. */
#include "words.h"

void report(FILE *to, struct table *t, size_t top)
{
	double mean = number_mean(t);
	size_t count = 0;
	for (size_t i = 0; i < t->room; i++)
		if (t->entries[i].word)
			t->entries[count++] = t->entries[i];
	for (size_t i = count; i < t->room; i++)
		t->entries[i] = (struct entry){ 0 };

	heap_top(t->entries, count, top);
	sort_entries(t->entries, top < count ? top : count);
	size_t width = count ? number_digits(t->entries[0].seen) : 1;
	for (size_t i = 0; i < top && i < count; i++)
		fprintf(to, "%*lu %s\n", (int)width, t->entries[i].seen, t->entries[i].word);
	fprintf(to, "%zu words, seen %.2f times on average\n", count, mean);
}
