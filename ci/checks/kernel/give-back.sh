# Tests that memory comes back, for ci/run kernel, which sets work and reads status: a program takes each kind of memory
# and gives it back, until it has taken more than the machine has. Linux passes with the same 512 MB.

# Takes kinds of memory, each with the number of times, in one machine after the other.
gives_back() {
    kernel/run.sh --seconds 1800 --add "$work/give_back" "${@:2}" -- \
        /bin/busybox sh -c "for kind in $1; do give_back \${kind%-*} \${kind#*-} || exit; done"
}

# $1: processes of 1,000 VMAs, one after another. $2: mappings of 64 KiB of shared memory. $3: Linux, or nothing.
give_back() {
    local kinds="shared-$2 sparse-1 tables-512 processes-$1 forks-2" ended=125
    musl-gcc -O2 -w -static -o "$work/give_back" kernel/programs/give_back.c
    gives_back "$kinds" --memory 512M || status=3
    # The heap has room for a process of 65,000 VMAs, but not for two.
    gives_back forks-3 --memory 160M || status=3
    if [[ ${3-} ]]; then
        # Now and then Linux itself panics in the emulator while it boots.
        for _ in 1 2 3; do
            ((ended == 125)) || break
            gives_back "$kinds" --memory 512M --linux "$3" >/dev/null && ended=0 || ended=$?
        done
        ((ended == 0)) || { echo "kernel: Linux ended with $ended"; status=3; }
    fi
    # The shrinker stops all CPUs, wherever they are.
    kernel/run.sh --smp 4 --seconds 300 --add "$work/tests/1@stress=/bin/stress" -- /bin/busybox sh -c '
        (while echo 2 >/proc/sys/vm/drop_caches; do :; done) & stress 10' || status=3
}
