/* What a program can learn about itself and its children: a line for each row of the tables in
 * docs/differences.md, with the row's name and what the program found.
 *
 * Each row runs in a process of its own. The argument is the id of the process that started the program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "noticed.h"

static void print(const struct row *row) {
    printf("%s: ", row->name);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        row->body();
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf(status ? " (status %#x)\n" : "\n", status);
    fflush(stdout);
}

int main(int count, char **words) {
    if (count != 2) return 2;
    if (!strcmp(words[1], "--executed")) {
        executed();
        return 0;
    }
    starter = atoi(words[1]);
    first_parent = getppid();
    const struct row *const tables[] = {CHILDREN, PARENTS, JOBS, PROCESS, TRACING, SIGNALS};
    for (unsigned n = 0; n < sizeof tables / sizeof *tables; n++)
        for (const struct row *row = tables[n]; row->name; row++) print(row);
    return 0;
}
