/* Counts the words of standard input. */
#include "words.h"

#include <stdlib.h>

int main(void)
{
	struct table t = { 0 };
	size_t length, word_length;
	char *text = text_read(stdin, &length);
	if (!text)
		return 1;
	const char *at = text, *end = text + length;
	while ((at = text_word(at, end, &word_length)) != NULL) {
		struct entry *e = table_at(&t, at, word_length);
		if (!e)
			return 1;
		e->seen++;
		at += word_length;
	}
	report(stdout, &t, 10);
	table_free(&t);
	free(text);
	return 0;
}
