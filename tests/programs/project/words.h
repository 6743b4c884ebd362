/* Counts words: what the parts of the project share. */
#ifndef WORDS_H
#define WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct entry {
	char *word;
	size_t length;
	unsigned long seen;
};

struct table {
	struct entry *entries;
	size_t used, room;
};

uint64_t hash_bytes(const char *bytes, size_t length);

void table_free(struct table *t);
struct entry *table_at(struct table *t, const char *word, size_t length);

char *text_read(FILE *from, size_t *length);
const char *text_word(const char *from, const char *end, size_t *length);

void sort_entries(struct entry *entries, size_t count);
void heap_top(struct entry *entries, size_t count, size_t top);

size_t number_digits(unsigned long n);
double number_mean(const struct table *t);

void report(FILE *to, struct table *t, size_t top);

#endif
