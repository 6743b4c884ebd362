/* FNV-1a. */
#include "words.h"

uint64_t hash_bytes(const char *bytes, size_t length)
{
	uint64_t h = 14695981039346656037ull;
	for (size_t i = 0; i < length; i++) {
		h ^= (unsigned char)bytes[i];
		h *= 1099511628211ull;
	}
	return h;
}
