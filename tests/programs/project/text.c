/* Reads a stream and splits it into words. */
#include "words.h"

#include <ctype.h>
#include <stdlib.h>

char *text_read(FILE *from, size_t *length)
{
	size_t room = 4096, used = 0;
	char *text = malloc(room);
	while (text) {
		used += fread(text + used, 1, room - used, from);
		if (used < room)
			break;
		char *larger = realloc(text, room *= 2);
		if (!larger)
			free(text);
		text = larger;
	}
	*length = used;
	return text;
}

const char *text_word(const char *from, const char *end, size_t *length)
{
	while (from < end && !isalnum((unsigned char)*from))
		from++;
	const char *start = from;
	while (from < end && isalnum((unsigned char)*from))
		from++;
	*length = (size_t)(from - start);
	return *length ? start : NULL;
}
