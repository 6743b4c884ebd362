#!/usr/bin/env bash
# Measures how long `vmarea merge -p` stops a program, and what it costs, with 1, 100 and 1,000 threads and 20,000
# mappings (crates/cli/tests/programs/pauses.c): without a merge, merged, and merged by an older vmarea, in turn.
# Needs root and a quiet machine.
# - Pauses: the first thread of the program counts. A *standstill* is an interval of more than 100 us between two of its
#   readings of the clock. Of each run, those are taken that overlap the time from the start to the end of the tool, and
#   without a merge those of as long a time. Of these the 95th percentile is the smallest that is not below 95 % of
#   them, and 0 if there is none. As most are short, and have other causes, it is also printed for the longest ones
#   alone, one for each piece of the merge.
# - Work: the processor time of the tool and of the program, in a further run in which the program does nothing else.
# Prints medians over the runs, with the interval that contains the median of the population with a probability of
# 95 %, and those of the differences and ratios of runs in the same turn. Fails if, with at most 100 threads, this
# interval of the difference between the percentiles of the longest ones, with and without a merge, exceeds 5 ms, or if
# wall-clock or processor time are in the median more than 1.2 of the older tool's. If a tool finds 5 ms too short for
# so many threads, all merge with a longer pause, which is printed.
# With --instructions it counts those of tool and program instead, in Debian's Linux 6.12 under QEMU, whose clock is the
# number of instructions. The machine need not be quiet.
# usage: ci/run pauses [--vmarea FILE] [--old FILE] [--threads N,...] [--mappings N] [--instructions]
#                     [--pairs N] [--seconds N]
#   --vmarea    the binary to measure; built by default
#   --old       the binary to compare it with; none by default
#   --threads   numbers of threads (1,100,1000)
#   --mappings  number of mappings (20,000)
#   --pairs     number of runs of each kind (20), or fewer:
#   --seconds   after as long with one number of threads (110), no further turn begins
. "$(dirname "$0")/../../lib/prepare.sh"
leash --session 7200 "$@"

# Builds the archive that the kernel unpacks into memory and whose /init it runs.
pack() {
    local root=$work/root library
    mkdir -p "$root"/{bin,proc,sys,dev,tmp,var/tmp}
    cp "$cache/busybox" "$root/bin/busybox"
    cp "$work/pauses" "$root/pauses"
    cp "$vmarea" "$root/new"
    [[ -z $old ]] || cp "$old" "$root/old"
    for library in $(ldd "$root"/{new,pauses} ${old:+"$old"} | grep -o '/[^ ]*\.so[^ ]*' | sort -u); do
        install -D "$library" "$root$library"
    done
    cat >"$root/init" <<END
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for threads in ${threads//,/ }; do
    for tool in new ${old:+old}; do
        rm -f /tmp/board
        truncate -s 9M /tmp/board
        # At an instruction a nanosecond everything takes longer: pieces are about as large as usually with 5 ms.
        if [ \$threads -le 100 ]; then pause=15ms; else pause=600ms; fi
        /pauses /tmp/board \$threads $mappings /\$tool merge -p @ --apply --max-pause \$pause >/tmp/said 2>&1 ||
            cat /tmp/said
        echo "\$threads \$tool \$(tail -n 1 /tmp/said) \$(sed -n 's/.* in \([0-9]*\) steps.*/\1/p' /tmp/said)"
    done
done >/dev/ttyS1
poweroff -f
END
    chmod +x "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$work/initramfs"
}

instructions() {
    command -v qemu-system-x86_64 cpio xz >/dev/null ||
        packages qemu-system-x86 cpio xz-utils
    . ci/lib/linux.sh
    fetch_kernel 6.12
    fetch_busybox
    pack
    timeout 3600 qemu-system-x86_64 -accel tcg,thread=single -icount shift=0,sleep=off \
        -cpu max,la57=off,pku=off,cx16=off -smp 1 -m 2G -nodefaults -display none -no-reboot \
        -kernel "$cache/6.12/vmlinuz" -initrd "$work/initramfs" \
        -append 'console=ttyS0 quiet panic=-1 mitigations=off' \
        -serial "file:$work/console" -serial "file:$work/counted" || fail "the guest did not end: $(<"$work/console")"
    tr -d '\r' <"$work/counted" | awk '
        NF != 5 { print; wrong = 1; next }
        {
            all = ($3 + $4) / 1e6
            printf "%4d threads, %s: %.1f million instructions, %.1f of the tool and %.1f of the program, %d steps\n",
                $1, $2, all, $3 / 1e6, $4 / 1e6, $5
            if ($2 == "new") { new = all; next }
            printf "%4d threads: new / old %.3f\n", $1, new / all
            if ($1 <= 100 && new > 1.2 * all) wrong = 1
        }
        END { exit wrong || !NR ? 3 : 0 }'
}

needs_root
vmarea='' old='' threads=1,100,1000 mappings=20000 pairs=20 seconds=110 only=''
while (($#)); do
    case $1 in
    --vmarea | --old | --threads | --mappings | --pairs | --seconds)
        printf -v "${1#--}" %s "${2:?}"
        shift
        ;;
    --instructions) only=1 ;;
    *) fail "unknown: $1" ;;
    esac
    shift
done
if [[ -z $vmarea ]]; then
    packages
    vmarea=$(program vmarea packaged)
fi
temporary
gcc -O2 -Wall -Wextra -pthread -o "$work/pauses" crates/cli/tests/programs/pauses.c
if [[ -n $only ]]; then
    instructions
    exit
fi
# Other programs disturb the measurement less.
{ echo -20 >/proc/self/autogroup; } 2>/dev/null || true
python3 ci/checks/pauses/pauses.py "$work" --new "$(realpath "$vmarea")" ${old:+--old "$(realpath "$old")"} \
    --threads "$threads" --mappings "$mappings" --pairs "$pairs" --seconds "$seconds"
