#!/usr/bin/env bash
# Counts the instructions of single memory calls and page faults, and the TLB flushes that they cause, in kernel/ and
# in Debian's Linux 6.12: the same static program in the same emulator (`qemu -icount shift=0`, one CPU), with
# `nopti mitigations=off transparent_hugepage=never` and a CPU on which both kernels clear and copy pages by words.
# Prints a table with ratios to Linux as Markdown (docs/paths.md).
# usage: ci/run paths           the table
#        ci/run paths --check   and exits with 3 if a row is above its limit
# Installs QEMU, busybox, musl and cpio if they are missing. KERNEL=FILE takes a built kernel.
. "$(dirname "$0")/../../lib/prepare.sh"

case ${1-} in
'' | --check) ;;
*) fail "no option $1" 2 ;;
esac
[[ $(uname -m) == x86_64 ]] || skip "the kernel is for x86-64"
packages qemu-system-x86 busybox-static musl-tools cpio
has_target x86_64-unknown-none || skip "no target x86_64-unknown-none"
temporary
. ci/lib/linux.sh
fetch_kernel 6.12
if [[ -z ${KERNEL-} ]]; then
    (cd kernel && env -u CARGO_TARGET_DIR cargo build --release --locked --quiet)
    KERNEL=$PWD/kernel/target/x86_64-unknown-none/release/vmarea-kernel
fi
export KERNEL
musl-gcc -O2 -Wall -static -o "$work/paths" kernel/programs/paths.c

# run WHO OPTION...: lines "WHO instructions|flushes NAME: MEDIAN LEAST" or "NAME: ENTRIES WHOLE"
run() {
    local who=$1 mode
    for mode in instructions flushes; do
        kernel/run.sh --icount --seconds 600 "${@:2}" --add "$work/paths" -- /bin/paths $mode |
            sed "s/^/$who $mode /" >>"$work/results" || fail "the program did not end on $who"
    done
}
run linux --linux "$cache/6.12/vmlinuz"
run ours
python3 ci/checks/paths/paths.py "$@" <"$work/results"
