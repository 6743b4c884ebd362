/* Hash table with open addressing. */
#include "words.h"

#include <stdlib.h>
#include <string.h>

static struct entry *place(struct entry *entries, size_t room, const char *word, size_t length)
{
	size_t i = hash_bytes(word, length) & (room - 1);
	while (entries[i].word && (entries[i].length != length || memcmp(entries[i].word, word, length) != 0))
		i = (i + 1) & (room - 1);
	return &entries[i];
}

static int grow(struct table *t)
{
	size_t room = t->room ? t->room * 2 : 64;
	struct entry *entries = calloc(room, sizeof(*entries));
	if (!entries)
		return -1;
	for (size_t i = 0; i < t->room; i++)
		if (t->entries[i].word)
			*place(entries, room, t->entries[i].word, t->entries[i].length) = t->entries[i];
	free(t->entries);
	t->entries = entries;
	t->room = room;
	return 0;
}

struct entry *table_at(struct table *t, const char *word, size_t length)
{
	if (t->used * 2 >= t->room && grow(t) != 0)
		return NULL;
	struct entry *e = place(t->entries, t->room, word, length);
	if (!e->word) {
		e->word = malloc(length + 1);
		if (!e->word)
			return NULL;
		memcpy(e->word, word, length);
		e->word[length] = 0;
		e->length = length;
		t->used++;
	}
	return e;
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->room; i++)
		free(t->entries[i].word);
	free(t->entries);
	*t = (struct table){ 0 };
}
