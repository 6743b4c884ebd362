// A heap of Boehm's collector in incremental mode, which protects pages to notice writes.
#include <gc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    (void)count;
    GC_INIT();
    GC_enable_incremental();
    int number = atoi(words[1]);
    void **all = GC_MALLOC(number * sizeof *all);
    for (int i = 0; i < number; i++) all[i] = GC_MALLOC(3000);
    GC_gcollect();
    srand(3);
    for (int i = 0; i < number / 4; i++) *(void **)all[rand() % number] = all[rand() % number];
    puts("ready"), fflush(stdout);
    pause();
}
