/* Small arithmetic for the report. */
#include "words.h"

size_t number_digits(unsigned long n)
{
	size_t digits = 1;
	while (n >= 10) {
		n /= 10;
		digits++;
	}
	return digits;
}

double number_mean(const struct table *t)
{
	unsigned long sum = 0;
	for (size_t i = 0; i < t->room; i++)
		sum += t->entries[i].seen;
	return t->used ? (double)sum / (double)t->used : 0.0;
}
