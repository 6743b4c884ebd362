# Tests of reclaim and swap in kernel/, for ci/run kernel, which sets work and reads status: programs that use more
# memory than there is and check their own bytes. Linux runs none of them, because its initramfs has no swap device.

# Runs a program with 8 MiB of memory for pages, and a swap device.
with_swap() {
    kernel/run.sh --memory 128M --limit 8M --swap 48M --add "$work/swap" --add "$work/hungry" --add "$work/isolation" "$@"
}

# $1: CPUs to test with. $2: seconds for each test of isolation. $3: forks.
reclaim() {
    local cpus said ended
    musl-gcc -O2 -w -static -pthread -D_GNU_SOURCE -o "$work/swap" kernel/programs/swap.c
    for cpus in $1; do
        echo "reclaim on $cpus CPUs:"
        # Three times as much memory as there is: every byte, with threads, forks, locked pages, MADV_PAGEOUT.
        with_swap --smp "$cpus" --seconds 900 -- /bin/swap 24 || status=3
        # A thread never sees a frame that was taken from it; forks while pages go out all the time.
        with_swap --smp "$cpus" --seconds 900 -- /bin/swap isolation "$2" 12 2>/dev/null || status=3
        with_swap --smp "$cpus" --reclaim --widen 300 --seconds 1800 -- /bin/isolation "$3" 2>/dev/null || status=3
    done
    stale_frames_show
    # With a full device the largest process ends, and the others go on.
    ended=0
    said=$(with_swap --seconds 120 -- /bin/busybox sh -c 'hungry; echo "hungry: $?"; seq 3 | wc -l' 2>&1) || ended=$?
    echo "$said"
    if ! grep -q 'out of memory: ended process.*12288 of 12288 pages of swap are used' <<<"$said" ||
        ! grep -q '^hungry: 137$' <<<"$said" || ((ended)); then
        echo "kernel: a full swap device was not survived"
        status=3
    fi
}

# Tests the test, as stale_entries_show does: without flushes on other CPUs, a thread must see frames of others.
stale_frames_show() {
    local said
    for _ in 1 2 3 4; do
        said=$(with_swap --smp 2 --flush-local --seconds 60 -- /bin/swap isolation 4 12 2>/dev/null) || true
        if [[ $said != 'reclaim: 0 leaked reads' ]]; then
            echo "reclaim without flushes: ${said:-crashed}"
            return
        fi
    done
    echo "kernel: reclaim passes without flushes"
    status=3
}
