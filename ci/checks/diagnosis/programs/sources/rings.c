// A ring of io_uring for each of many connections.
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    (void)count;
    int number = atoi(words[1]);
    struct io_uring *all = calloc(number, sizeof *all);
    for (int i = 0; i < number; i++)
        if (io_uring_queue_init(8, &all[i], 0)) return perror("io_uring_queue_init"), 1;
    puts("ready"), fflush(stdout);
    pause();
}
