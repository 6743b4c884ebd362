// Keys in libsodium's guarded memory.
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    (void)count;
    if (sodium_init() < 0) return 1;
    for (int i = 0; i < atoi(words[1]); i++) {
        unsigned char *key = sodium_malloc(32);
        if (!key) return perror("sodium_malloc"), 1;
        randombytes_buf(key, 32);
    }
    puts("ready"), fflush(stdout);
    pause();
}
