#!/usr/bin/env bash
# Merges live programs in unusual environments. Each program reads and writes its memory all the time and checks every
# byte at its end. Checked as well: exit status and message of the merge, what runs, and that nothing is left behind.
# Needs root and Linux 6.10; enlarges the swap space and starts KSM for a moment.
#   limits     pids.max and RLIMIT_NPROC leave no thread, one, two
#   sealed     mseal of the vDSO, as with CONFIG_MSEAL_SYSTEM_MAPPINGS, and of the data
#   huge       huge pages, parts of huge pages, neighbours in hugetlbfs
#   swapped    pages in swap, also of a forked child, and pages that are swapped out meanwhile
#   ksm        pages that ksmd has merged
#   segments   a 32-bit program; a thread in 32-bit code; all threads in 32-bit code
#   ends       SIGKILL, exec, exit, fork, vfork and SIGSTOP at random moments (RUNS=N of each, 100)
#   rights     another user's process, a process that may not be dumped
#   disk       a full file system, one that is read-only
# usage: [RUNS=N] ci/run live-environments [--vmarea FILE] [PART]...   (all by default)
. "$(dirname "$0")/../lib/prepare.sh"
leash --session 7200 "$@"

needs_root
vmarea=
if [[ ${1-} == --vmarea ]]; then
    vmarea=$(realpath "$2")
    shift 2
fi
if [[ -z $vmarea ]]; then
    packages
    vmarea=$(program vmarea)
fi
# A disk file system, because swap space cannot be in a tmpfs; readable for other users.
work=$(mktemp -d -p /var/tmp)
chmod 755 "$work"
undo=()
finish() {
    local line
    kill $(jobs -p) 2>/dev/null || true
    wait 2>/dev/null || true
    for line in "${undo[@]}"; do eval "$line" || true; done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP
failures=0

cat >"$work/segments.c" <<'C'
// segments SECONDS: a thread that executes 32-bit code, on neighbours that could be one mapping; it is the only thread
// for SECONDS, if that is not 0.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
enum { PARTS = 64, PART = 4 * 4096, PAGES = PARTS * 4 };
static volatile sig_atomic_t stop;
static char *low, *base;
static uint32_t *control, *count;
extern char code32[], code64[], code_end[];
__asm__(".text\n code32: .code32\n"
        "0: xorl %eax, %eax\n"
        "1: movl %eax, %ebp; sall $12, %ebp; addl %esi, %ebp\n"
        "   movl (%edi, %eax, 4), %edx; cmpl (%ebp), %edx; je 2f; movl $1, 4(%ebx)\n"
        "2: incl %edx; movl %edx, (%ebp); movl %edx, (%edi, %eax, 4); incl %eax; cmpl %ecx, %eax; jb 1b\n"
        "   cmpl $0, (%ebx); je 0b; ljmp *8(%ebx)\n"
        ".code64\n code64: movq 16(%rbx), %rsp; jmp *24(%rbx)\n code_end:\n");
static void on_term(int signal) { (void)signal, stop = 1; }
static void *run(void *unused)
{
    static struct __attribute__((packed)) { uint32_t at; uint16_t segment; } to;
    sigset_t all;
    sigfillset(&all), pthread_sigmask(SIG_BLOCK, &all, NULL);
    to.at = (uintptr_t)low, to.segment = 0x23;
    register void *far __asm__("r8") = &to;
    __asm__ volatile("subq $256, %%rsp; pushq %%rbp; pushq %%rbx; movq %0, %%rbx; movq %%rsp, 16(%%rbx)\n"
                     "leaq 9f(%%rip), %%rax; movq %%rax, 24(%%rbx); movl $0x2b, %%eax; movl %%eax, %%ds; movl %%eax, %%es\n"
                     "ljmpl *(%%r8)\n 9: popq %%rbx; popq %%rbp; addq $256, %%rsp"
                     :: "r"((uint64_t)(uintptr_t)control), "S"(base), "D"(count), "c"((uint64_t)PAGES), "r"(far)
                     : "rax", "rdx", "r9", "r10", "r11", "memory", "cc");
    return unused;
}
static void *map(uintptr_t at, size_t len, int prot, int kind)
{
    return mmap((void *)at, len, prot, kind | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
int main(int argc, char **argv)
{
    unsigned alone = argc > 1 ? atoi(argv[1]) : 0;
    signal(SIGTERM, on_term);
    low = map(0x10000000, 4096, 7, MAP_PRIVATE);
    control = map(0x11000000, 4096, 3, MAP_SHARED);
    count = map(0x12000000, PAGES * 4, 3, MAP_SHARED);
    base = map(0x20000000, PARTS * PART, 0, MAP_PRIVATE);
    memcpy(low, code32, code_end - code32);
    for (int first = 0; first < 2; first++)
        for (int i = first; i < PARTS; i += 2) mprotect(base + i * PART, PART, 3), base[i * PART] = 0;
    control[2] = (uintptr_t)low + (code64 - code32), control[3] = 0x33;
    dprintf(1, "ready %d\n", getpid());
    if (alone) {
        if (fork() == 0) sleep(alone), control[0] = 1, _exit(0);
        run(NULL);
    } else {
        pthread_t thread;
        pthread_create(&thread, NULL, run, NULL);
        while (!stop) usleep(10000);
        control[0] = 1, pthread_join(thread, NULL);
    }
    int right = control[1] == 0;
    for (int page = 0; page < PAGES; page++) right &= *(uint32_t *)(base + page * 4096) == count[page];
    dprintf(1, "%s\n", right ? "right" : "wrong");
    return !right;
}
C
gcc -O2 -Wall -Wextra -pthread -o "$work/target" crates/cli/tests/programs/environments.c
gcc -O2 -Wall -Wextra -pthread -o "$work/segments" "$work/segments.c"

fail() {
    echo "live-environments: FAILED: $1" >&2
    failures=$((failures + 1))
}

# Starts a program of this test in the cgroup $ENTER, if that is set; sets pid and child.
start() {
    rm -f "$work/out"
    (
        if [[ -n ${ENTER-} ]]; then echo "$BASHPID" >"$ENTER/cgroup.procs"; fi
        # Not replaced by exec: this shell would report the death of a process in its place.
        timeout -s KILL 300 "$work/$@"
        exit $?
    ) >"$work/out" 2>&1 &
    child=$!
    until grep -qs ^ready "$work/out" || ! kill -0 "$child" 2>/dev/null; do sleep 0.02; done
    pid=$(awk '/^ready/ { print $2 }' "$work/out")
    [[ -n $pid ]] || { fail "$*: $(tr '\n' ' ' <"$work/out")"; return 1; }
    sleep 0.1
}

maps() { wc -l 2>/dev/null <"/proc/$pid/maps" || echo 0; }

# Merges process $pid as user ${AS:-root}; sets status, said (what was printed on standard error, without progress).
merge() {
    local as=()
    [[ -z ${AS-} ]] || as=(setpriv --reuid "$AS" --regid "$AS" --clear-groups)
    status=0
    timeout -s KILL 120 "${as[@]}" "$vmarea" merge -p "$pid" --apply --max-pause 10s "$@" >"$work/result" 2>"$work/said" ||
        status=$?
    said=$(grep -v '^vmarea: merging: ' "$work/said" || true)
}

# Ends the program and checks its memory; nothing of the merge may be left.
right() {
    local name=$1
    if [[ -e /proc/$pid/maps ]]; then
        if grep -qsE '^State:.*[Tt] \(|^TracerPid:.*[1-9]' "/proc/$pid"/task/*/status; then fail "$name: left stopped or traced"; fi
        if "$vmarea" merge --resume -p "$pid" >/dev/null 2>"$work/resume"; then fail "$name: something was left"; fi
    fi
    kill -TERM "$pid" 2>/dev/null || true
    wait "$child" || fail "$name: the program ended with $?: $(tr '\n' ' ' <"$work/out")"
}

# try NAME STATUS MESSAGE JOINS [OPTION]... -- PROGRAM ...: merges a program. The exit status must be STATUS, each line
# on standard error must match MESSAGE, and the number of mappings must become less if JOINS is yes.
try() {
    local name=$1 expected=$2 message=$3 joins=$4 options=() before after fewer=no other
    shift 4
    while [[ $1 != -- ]]; do options+=("$1") && shift; done
    shift
    start "$@" || return 0
    before=$(maps)
    [[ -z ${THEN-} ]] || eval "$THEN"
    merge "${options[@]}"
    after=$(maps)
    ((after >= before)) || fewer=yes
    other=$(grep -vE "$message" <<<"$said" || true)
    ((status == expected)) && [[ $fewer == "$joins" && -z $other ]] ||
        fail "$name: status $status, $before mappings became $after: $(tr '\n' ' ' <<<"$said")"
    [[ -z ${AFTER-} ]] || eval "$AFTER"
    right "$name"
    echo "live-environments: $name: $before mappings became $after, status $status${said:+: ${said//$'\n'/ | }}"
}

limits() {
    local cgroup=/sys/fs/cgroup/pids/vmarea-test no='cannot have the thread that does the work' most moved ENTER THEN
    [[ ! -e /sys/fs/cgroup/cgroup.controllers ]] || cgroup=/sys/fs/cgroup/vmarea-test
    [[ -e /sys/fs/cgroup/pids || ! -e /sys/fs/cgroup/cgroup.controllers ]] || echo +pids >/sys/fs/cgroup/cgroup.subtree_control
    mkdir -p "$cgroup"
    undo+=("rmdir $cgroup")
    for moved in '' -m; do
        # The program has three threads, besides `timeout`.
        for most in 4 6; do
            ENTER=$cgroup THEN="echo $most >$cgroup/pids.max"
            echo max >"$cgroup/pids.max"
            case $most in
            4) try "pids.max $most $moved" 1 "$no" no -- target $moved ;;
            6) try "pids.max $most $moved" 0 '^$' yes -- target $moved ;;
            esac
        done
        ENTER='' THEN=''
        try "RLIMIT_NPROC 3 $moved" 1 "$no" no -- target $moved -u 65101 -l 3
        AS=65102 try "RLIMIT_NPROC 3, the same user $moved" 1 "$no" no -- target $moved -u 65102 -l 3
        try "RLIMIT_NPROC 5 $moved" 0 '^$' yes -- target $moved -u 65103 -l 5
    done
    # One thread is the agent; the one that reads events finds no place where page offsets do not follow.
    start target -m -u 65104 -l 4
    merge
    ((status == 0)) || [[ $status == 1 && $said == *"$no"* ]] || fail "one thread: status $status: $said"
    [[ $said != *max_map_count* ]] || fail "one thread: $said"
    right "RLIMIT_NPROC 4 -m"
}

sealed() {
    local moved kept='cannot be given their flags'
    for moved in '' -m; do
        try "sealed vDSO $moved" 0 '^$' yes -- target $moved -s vdso
        try "sealed data $moved" 0 "$kept" yes -- target $moved -s data
        try "both sealed $moved" 0 "$kept" yes --by copy -- target $moved -s both
    done
}

huge_pages() { awk '/^AnonHugePages:/ { sum += $2 } END { print sum + 0 }' "/proc/$pid/smaps"; }

huge() {
    local THEN='had=$(huge_pages)' AFTER='has=$(huge_pages)' had=0 has=0
    try "huge pages" 0 '^$' yes --by move -- target -h -n 16 -k 1024
    ((has == had && had > 0)) || fail "huge pages: $had kB became $has kB"
    try "huge pages, copied" 0 '^$' yes --by copy -- target -h -n 16 -k 1024
    try "parts of huge pages" 0 '^$' yes -- target -h -m -n 16 -k 100
    try "parts of huge pages, copied" 0 '^$' yes --by copy -- target -h -m -n 16 -k 100
    local old
    old=$(</proc/sys/vm/nr_hugepages)
    undo+=("echo $old >/proc/sys/vm/nr_hugepages")
    echo $((old + 4)) >/proc/sys/vm/nr_hugepages
    THEN='had=$(grep -c /anon_hugepage "/proc/$pid/maps" || true)' AFTER='has=$(grep -c /anon_hugepage "/proc/$pid/maps" || true)'
    if (($(awk '/^HugePages_Free/ { print $2 }' /proc/meminfo) >= 4)); then
        try "neighbours in hugetlbfs" 0 '^$' yes -- target -T 4
        ((has == had && had == 4)) || fail "hugetlbfs: $had mappings became $has"
    fi
}

swap_of() { awk '/^VmSwap:/ { print $2 }' "/proc/$pid/status"; }

swapped() {
    fallocate -l 256M "$work/swap"
    chmod 600 "$work/swap"
    mkswap "$work/swap" >/dev/null
    swapon "$work/swap" || { echo "live-environments: swapped: skipped: no swap on this file system"; return; }
    undo+=("swapoff $work/swap")
    local by moved run had=0 THEN='had=$(swap_of)' AFTER=''
    for by in move copy; do
        for moved in '' -m; do
            AFTER='has=$(swap_of)'
            try "in swap $moved, by $by" 0 '^$' yes --by "$by" -- target $moved -o -t 0 -n 128 -k 16
            ((had > 4000)) || fail "in swap: only $had kB"
            [[ $by == copy ]] || ((has > 4000)) || fail "in swap: $had kB became $has kB"
            AFTER=''
            try "in swap of a child too $moved, by $by" 0 '^$' yes --by "$by" --copy 100000 -- target $moved -o -a child
            for run in 1 2 3 4; do
                try "swapped out meanwhile $moved, by $by ($run)" 0 '^$' yes --by "$by" -- target $moved -o -a pageout -n 256
            done
        done
    done
}

ksm() {
    local setting kept='cannot be given their flags \(MADV_MERGEABLE\)|nothing to merge' THEN
    for setting in run pages_to_scan sleep_millisecs; do
        undo+=("echo $(<"/sys/kernel/mm/ksm/$setting") >/sys/kernel/mm/ksm/$setting")
    done
    undo=("echo 2 >/sys/kernel/mm/ksm/run" "${undo[@]}")
    echo 20000 >/sys/kernel/mm/ksm/pages_to_scan
    echo 5 >/sys/kernel/mm/ksm/sleep_millisecs
    echo 1 >/sys/kernel/mm/ksm/run
    # shellcheck disable=SC2016
    THEN='for _ in $(seq 100); do (($(<"/proc/$pid/ksm_merging_pages") < 200)) || break; sleep 0.1; done'
    try "KSM" 4 "$kept" no -- target -e -t 1
    try "KSM, with --copy" 4 "$kept" no --copy 100000 -- target -e -t 1
    try "KSM, by copying" 4 "$kept" no --by copy --copy 100000 -- target -e -t 1 -m
}

segments() {
    try "a thread in 32-bit code" 0 '^$' yes -- segments 0
    try "a thread in 32-bit code, by copying" 0 '^$' yes --by copy -- segments 0
    try "the only thread in 32-bit code" 1 '32-bit' no -- segments 5
    printf '%s\n' 'void _start(void) { for (;;) __asm__ volatile("int $0x80" :: "a"(29)); }' >"$work/bits.c"
    if gcc -m32 -nostdlib -static -fno-pie -no-pie -o "$work/bits" "$work/bits.c" 2>/dev/null; then
        "$work/bits" &
        pid=$!
        merge
        [[ $status == 1 && $said == *'is a 32-bit program'* ]] || fail "a 32-bit program: status $status: $said"
        kill -KILL "$pid"
        wait "$pid" 2>/dev/null || true
    fi
}

# Merges a program to which something happens at a random moment.
ends() {
    local what run moment message does
    for what in kill exec exec-in-thread exit fork vfork stop; do
        declare -A seen=()
        does=()
        case $what in fork | vfork | exit) does=(-a "$what") ;; esac
        for run in $(seq "${RUNS:-100}"); do
            moved=()
            ((run % 2)) || moved=(-m)
            start target "${moved[@]}" "${does[@]}" -n $((64 << RANDOM % 4)) -k 2 || continue
            printf -v moment '0.%03d' $((RANDOM % 250))
            (
                sleep "$moment"
                case $what in
                kill) kill -KILL "$pid" ;;
                exec | exit) kill -USR1 "$pid" ;;
                exec-in-thread) kill -USR2 "$pid" ;;
                stop) kill -STOP "$pid" ;;
                esac
            ) 2>/dev/null &
            merge
            wait $! || true
            message=$(sed 's/[0-9][0-9,]*/N/g' <<<"$said")
            seen["status $status $message"]=$((${seen["status $status $message"]-0} + 1))
            (($(grep -c . <<<"$said") <= 1 || status == 0)) || fail "$what: more than one line: $said"
            [[ $said != *'changed meanwhile'* || ! $what =~ exec ]] || fail "$what: stopped another program: $said"
            case "$status $message" in
            0\ * | 4\ *'nothing to merge'*) ;;
            1\ *'shares its memory'* | 1\ *'does not stop'*) [[ $what == vfork ]] || fail "$what: $said" ;;
            1\ *'has ended' | 1\ *'there is no process'* | 1\ *'become another program'*) [[ $what =~ kill|exec|exit ]] || fail "$what: $said" ;;
            *) fail "$what: status $status: $said" ;;
            esac
            case $what in
            kill) wait "$child" 2>/dev/null || true ;;
            stop)
                [[ $(awk '/^State/ { print $2 }' "/proc/$pid/status") == T ]] || fail "stop: it runs"
                kill -CONT "$pid"
                right "$what"
                ;;
            exit) wait "$child" || fail "$what: $(tr '\n' ' ' <"$work/out")" ;;
            exec*)
                # The new program is ready before it is asked to end.
                for _ in $(seq 500); do
                    (($(grep -c ^ready "$work/out") >= 2)) && break
                    sleep 0.02
                done
                right "$what"
                ;;
            *) right "$what" ;;
            esac
        done
        for message in "${!seen[@]}"; do echo "live-environments: $what: ${seen[$message]} times $message"; done
    done
}

rights() {
    local AS=65105 no='no permission to trace process'
    try "another user's process" 5 "$no" no -- target
    try "a process that may not be dumped" 5 "$no" no -- target -u 65105 -d
    AS=65105 try "the user's own process" 0 '^$' yes -- target -u 65105
}

disk() {
    mkdir "$work/full"
    mount -t tmpfs -o size=64k tmpfs "$work/full"
    undo+=("umount $work/full")
    dd if=/dev/zero of="$work/full/rest" bs=4k 2>/dev/null || true
    # The merge itself needs no file.
    TMPDIR=$work/full try "full disk" 0 '^$' yes -- target
    start target
    merge --json="$work/full/result"
    [[ $status == 1 && $(grep -c . <<<"$said") == 1 && $said == *'No space left'* ]] || fail "full disk: status $status: $said"
    echo "live-environments: full disk, --json: $said"
    right "full disk, --json"
    mount -o remount,ro "$work/full"
    try "read-only disk" 1 'Read-only file system' no --json="$work/full/result" -- target
}

(($#)) || set -- limits sealed huge swapped ksm segments ends rights disk
for part in "$@"; do
    case $part in
    limits | sealed | huge | swapped | ksm | segments | ends | rights | disk) "$part" ;;
    *) fail "no such part: $part" ;;
    esac
done
((failures == 0)) || exit 1
echo "live-environments: ok"
