#!/usr/bin/env bash
# Measures kernel/ and Debian's Linux 6.12 in the same emulator: the spacing test of "VMA merging in Linux" (Jakub
# Matěna, tables 4.2 and 4.3) under each policy, and page faults by threads with each kind of VMA lock.
# Instructions are counted (`-icount shift=0`, one CPU); times are those of QEMU with 2 CPUs, in counts of the time stamp
# counter. Prints tables with ratios to Linux, as Markdown.
# usage: ci/run kernel-figures -- [N]    N mappings or pages of each thread (1000)
# KERNELS=FOLDER keeps the built kernels there, and takes those that are there already.
. "$(dirname "$0")/../../lib/prepare.sh"

count=${1:-1000}
packages qemu-system-x86 busybox-static musl-tools cpio
temporary
kernels=${KERNELS:-$work}
mkdir -p "$kernels"
. ci/lib/linux.sh
fetch_kernel 6.12
musl-gcc -O2 -w -static -pthread -o "$work/figures" kernel/programs/figures.c

# Each kind of lock is a kernel of its own.
locks=(default mmap flagged aligned boxed)
built=$PWD/kernel/target/x86_64-unknown-none/release/vmarea-kernel
for lock in "${locks[@]}"; do
    [[ ! -e $kernels/kernel-$lock ]] || continue
    features=()
    [[ $lock == default ]] || features=(--features "lock-$lock")
    (cd kernel && env -u CARGO_TARGET_DIR cargo build --release --locked --quiet "${features[@]}")
    cp "$built" "$kernels/kernel-$lock"
done

# run TEST WHO MODE KERNEL OPTION...: lines "TEST WHO MODE figure counts number"
run() {
    local test=$1 who=$2 mode=$3 how rounds
    export KERNEL=$kernels/kernel-$4
    shift 4
    case $mode in
    instructions) how=(--icount) rounds=2 ;;
    time) how=(--smp 2) rounds=5 ;;
    esac
    kernel/run.sh "${how[@]}" --seconds 900 "$@" --add "$work/figures" -- \
        /bin/figures "$test" "$count" "$rounds" 2>/dev/null | sed "s/^/$test $who $mode /" >>"$work/results" ||
        fail "$test on $who did not end"
}

for mode in instructions time; do
    run spacing Linux $mode default --linux "$cache/6.12/vmlinuz"
    for policy in linux-5.18 linux-6.12 linux thesis vmarea; do
        run spacing "$policy" $mode default --policy "$policy"
    done
    run faults Linux $mode default --linux "$cache/6.12/vmlinuz"
    for lock in "${locks[@]}"; do
        run faults "$lock" $mode "$lock"
    done
done
python3 ci/checks/kernel-figures/figures.py "$count" <"$work/results"
