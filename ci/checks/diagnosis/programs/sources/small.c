// Many small allocations, all in use.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    (void)count;
    for (int i = 0; i < atoi(words[1]); i++) *(volatile char *)malloc(200 + i % 900) = 1;
    puts("ready"), fflush(stdout);
    pause();
}
