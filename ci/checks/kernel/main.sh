#!/usr/bin/env bash
# Programs in kernel/ and in Debian's Linux 6.12, under QEMU with the same initramfs: what they print is compared
# line by line, of Linux's selftests the verdicts. Prints a table; exits with 3 if a program differs that is not
# listed in ci/checks/kernel/exceptions, if a frame is lost or the core's structures are damaged after any program, or if
# the isolation of processes fails.
# usage: ci/run kernel                      all of it: some 15 minutes
#        ci/run kernel --compare [NAME...]  the comparison, of all programs or of those named
#        ci/run kernel --ltp [NAME...]      the same for tests of an installed Linux Test Project: LTP=FOLDER
#        ci/run kernel --isolation FORKS    each kind of isolation with so many forks on 2 and on 4 CPUs
#        ci/run kernel --stress SECONDS     threads and forks on 4 CPUs
#        ci/run kernel --reclaim FORKS      reclaim and swap on 1, 2 and 4 CPUs
#        ci/run kernel --give-back PROCESSES  more memory of each kind taken and given back than there is, beside Linux
#        ci/run kernel --bad                each kind of memory used up a hundred times, a panic
#        ci/run kernel --share              without Linux and its selftests: programs whose output is known, at most
#                                          two minutes
# Installs QEMU, busybox, musl and cpio if they are missing. KEEP=FOLDER keeps the outputs;
# KERNEL=FILE takes a built kernel.
. "$(dirname "$0")/../../lib/prepare.sh"

case ${1-} in
'' | --compare | --ltp) ;;
--share | --bad) (($# == 1)) || fail "$1 takes no argument" 2 ;;
--isolation | --stress | --reclaim | --give-back) (($# == 2)) || fail "$1 takes a number" 2 ;;
*) fail "no option $1" 2 ;;
esac
[[ $(uname -m) == x86_64 ]] || skip "the kernel is for x86-64"
packages qemu-system-x86 busybox-static musl-tools cpio
has_target x86_64-unknown-none || skip "no target x86_64-unknown-none"

temporary
out=${KEEP:-$work/out}
mkdir -p "$work/tests" "$out"

if [[ -z ${KERNEL-} ]]; then
    (cd kernel && cargo build --release --locked --quiet)
    KERNEL=$PWD/${CARGO_TARGET_DIR:-kernel/target}/x86_64-unknown-none/release/vmarea-kernel
    [[ -e $KERNEL ]] || KERNEL=$PWD/kernel/target/x86_64-unknown-none/release/vmarea-kernel
fi
export KERNEL

build_programs() {
    local source name
    for source in kernel/programs/{files,hostile,signals,stress}.c tests/programs/static.c; do
        name=$(basename "$source" .c)
        musl-gcc -O2 -w -static -pthread -D_GNU_SOURCE -o "$work/tests/1@$name" "$source"
    done
    cp ci/checks/kernel/busybox.sh "$work/tests/1@busybox.sh"
    musl-gcc -O2 -w -static -pthread -o "$work/isolation" kernel/programs/isolation.c
    musl-gcc -O2 -w -static -pthread -o "$work/hungry" kernel/programs/hungry.c
}

build_selftests() {
    packages $package libcap-dev
    find_selftests
    local sources name item include=$work/include
    # What the machine that built the tests had (io_uring) decides nothing here.
    mkdir -p "$include"
    : >"$include/local_config.h"
    grep -v '^#' ci/checks/kernel/selftests | while read -r -a sources; do
        name=$(basename "${sources[0]}")
        for item in "${!sources[@]}"; do
            sources[item]=$selftests/${sources[item]%.c}.c
        done
        # The folder of the test comes last, so that the empty configuration is found first.
        sed 's|"local_config.h"|<local_config.h>|' "${sources[0]}" >"$work/$name.c"
        gcc -O2 -w -static -pthread -DKSFT_SKIP=4 -D_GNU_SOURCE -I"$include" -I"$(dirname "${sources[0]}")" \
            -I"$selftests/../../../usr/include" -I"$selftests" -I"$selftests/../../.." \
            -I"$selftests/futex/include" -I"$selftests/mm" \
            -o "$work/tests/2@$name" "$work/$name.c" "${sources[@]:1}" -lcap ||
            fail "cannot build $name"
    done
}

# Takes the memory tests of an installed LTP, with the libraries that they need.
take_ltp() {
    local folder=${LTP-}/testcases/bin test library
    [[ -d $folder ]] || return 0
    rm -f "$work"/tests/*
    for test in "$folder"/{brk,fork,madvise,mmap,mprotect,mremap}[0-9][0-9]; do
        cp "$test" "$work/tests/3@${test##*/}"
    done
    for library in $(ldd "$work"/tests/3@* | grep -o '/[^ ]*\.so[^ ]*' | grep -v : | sort -u); do
        libraries+=(--add "$library=$library")
    done
}

# Runs all programs in this kernel, or in another one.
libraries=()
run_tests() {
    local items=("${libraries[@]}") test
    for test in "$work"/tests/*; do
        items+=(--add "$test=/tests/${test##*/}")
    done
    kernel/run.sh "$@" --seconds 900 "${items[@]}" --add ci/checks/kernel/inside.sh=/inside -- /bin/busybox sh /inside
}

# Forks while a thread reads through its TLB; each flush comes late. With `busy` the same while mappings with
# different anon_vmas merge, pages migrate, and KSM merges pages.
isolation() {
    local forks=$1 cpus busy
    for busy in "${@:2}"; do
        for cpus in 2 4; do
            printf '%s CPUs%s: ' "$cpus" "${busy:+, with merges, migration and KSM}"
            isolate --smp "$cpus" --seconds 3600 ${busy:+--policy vmarea} -- /bin/isolation "$forks" $busy || status=3
        done
        stale_entries_show $busy
    done
}

isolate() {
    kernel/run.sh --widen 300 --add "$work/isolation" "$@" 2>/dev/null
}

# Tests the test: if the TLBs of other CPUs keep stale entries, it must not pass. It counts leaks, or reads wrong
# bytes of its own and crashes.
stale_entries_show() {
    local said
    for _ in 1 2 3; do
        said=$(isolate --smp 2 --flush-local --seconds 60 -- /bin/isolation 20 "$@") || true
        if [[ $said != *', 0 leaked reads'* ]]; then
            echo "without flushes${1:+, $1}: ${said:-crashed}"
            return
        fi
    done
    echo "kernel: isolation passes without flushes"
    status=3
}

# Threads and forks change memory on 4 CPUs.
stress() {
    kernel/run.sh --smp 4 --seconds $(($1 + 140)) --add "$work/tests/1@stress=/bin/stress" -- /bin/stress "$1" ||
        status=3
}

# A panic prints the functions that led to it, and QEMU ends with a status.
panic() {
    local said ended=0
    said=$(kernel/run.sh -- /bin/busybox sh -c 'echo c >/proc/sysrq-trigger' 2>&1) || ended=$?
    if ((ended != 99)) || ! grep -q 'panic on CPU .*a program asked' <<<"$said" ||
        ! grep -q 'system_call_entry' <<<"$said"; then
        echo "kernel: a panic ended with status $ended: $said"
        status=3
    fi
}

# A program that takes all pages ends, one that uses up memory of the kernel gets an error, and the machine goes on.
# The argument is the number of runs of each kind.
full_memory() {
    local said ended=0
    said=$(kernel/run.sh --memory 96M --seconds 60 --add "$work/hungry" -- \
        /bin/busybox sh -c 'hungry; echo "hungry: $?"; seq 3 | wc -l' 2>&1) || ended=$?
    echo "$said"
    if ! grep -q 'out of memory: ended process' <<<"$said" || ! grep -q '^hungry: 137$' <<<"$said" || ((ended)); then
        echo "kernel: a full memory was not survived"
        status=3
    fi
    local kind
    for kind in processes vmas threads pipes files; do
        for ((run = 0; run < $1; run++)); do
            ended=0
            said=$(kernel/run.sh --memory 96M --seconds 60 --add "$work/hungry" -- /bin/hungry $kind 2>&1) || ended=$?
            if ((ended != 1 && ended != 137)); then
                tail -25 <<<"$said"
                echo "kernel: $kind without end were not survived: status $ended"
                status=3
            fi
        done
        echo "$kind without end: $1 runs"
    done
}

. ci/checks/kernel/reclaim.sh
. ci/checks/kernel/give-back.sh

# Leaves only the named programs.
keep_only() {
    local name
    (($#)) || return 0
    mkdir "$work/named"
    for name; do
        mv "$work/tests/"?"@$name" "$work/named" || fail "no program $name" 2
    done
    rm -r "$work/tests"
    mv "$work/named" "$work/tests"
}

# Runs the programs in kernel/ and in Linux, and compares the results.
compare_with_linux() {
    . ci/lib/linux.sh
    fetch_kernel 6.12
    local linux=$cache/6.12/vmlinuz
    run_tests --smp 2 --memory 3G >"$out/ours" || status=1
    run_tests --smp 2 --memory 3G --linux "$linux" >"$out/linux" || status=1
    python3 ci/checks/kernel/compare.py "$out/ours" "$out/linux" ci/checks/kernel/exceptions || status=$?
}

compare() {
    # The selftests have a cache of their own.
    . ci/lib/selftests.sh
    build_selftests
    keep_only "$@"
    compare_with_linux
}

ltp() {
    take_ltp
    if ((${#libraries[@]} == 0)); then
        echo "kernel: skipped: LTP needs LTP=FOLDER of an installed Linux Test Project"
        return
    fi
    keep_only "$@"
    compare_with_linux
}

give_back_beside_linux() {
    . ci/lib/linux.sh
    fetch_kernel 6.12
    give_back "$1" 40000 "$cache/6.12/vmlinuz"
}

# What needs neither Linux nor its selftests.
share() {
    local name
    run_tests --smp 2 >"$out/ours" || status=1
    python3 ci/checks/kernel/compare.py --checks "$out/ours" || status=3
    # These print the same on every Linux.
    for name in files signals static; do
        { "$work/tests/1@$name" 2>&1 || true; } >"$work/native"
        sed -n "/^=== $name\$/,/^=== status/p" "$out/ours" | grep -v '^===' | diff - "$work/native" ||
            { echo "kernel: $name differs from this machine's Linux"; status=3; }
    done
    grep -A1 '^=== stress$' "$out/ours" | grep -q '^passed$' || { echo "kernel: stress failed"; status=3; }
    [[ $(sed -n '/^=== busybox.sh$/{n;p}' "$out/ours") == "$(seq 1000 | sha256sum)" ]] ||
        { echo "kernel: busybox differs"; status=3; }
    isolation 10 ''
    full_memory 3
    reclaim 2 3 10
    give_back 100 100
    panic
}

status=0
build_programs
case ${1-} in
--share) share ;;
--compare) compare "${@:2}" ;;
--ltp) ltp "${@:2}" ;;
--isolation) isolation "$2" '' busy ;;
--stress) stress "$2" ;;
--reclaim) reclaim "1 2 4" 20 "$2" ;;
--give-back) give_back_beside_linux "$2" ;;
--bad)
    full_memory 100
    panic
    ;;
*)
    compare
    ltp
    stress 60
    isolation 1000 '' busy
    reclaim "1 2 4" 20 1000
    give_back_beside_linux 10000
    full_memory 20
    panic
    ;;
esac
((status)) || echo "kernel: ok"
exit "$status"
