#!/usr/bin/env bash
# Records a program that counts its own memory calls on Debian's kernels, booted under QEMU's software emulation with
# one and with two processors: what the program counted and the trace does not have must be reported as lost, and the
# replay must not differ from the kernel. Prints a line for each kernel and number of processors, and each wrong run.
#
# Since Linux 7.2 the kernel skips a BPF program for a thread that meets it on a processor where another thread is inside
# of it: many threads on one processor show that best.
#
# usage: ci/run lost [--runs N] [--calls N] [--cpus N] [7.3|6.12|...]
#        VMAREA=path/of/vmarea takes that binary instead of building one
. "$(dirname "$0")/../../lib/prepare.sh"
. ci/lib/linux.sh

runs=100 calls=200 cpus=(1 2) kernels=()
while (($#)); do
    case $1 in
        --runs | --calls | --cpus)
            [[ ${2-} =~ ^[1-9][0-9]*$ ]] || fail "$1 needs a number" 2
            if [[ $1 == --cpus ]]; then cpus=("$2"); else printf -v "${1#--}" %s "$2"; fi
            shift 2
            ;;
        [0-9]*)
            kernels+=("$1")
            shift
            ;;
        *) fail "unknown: $1" 2 ;;
    esac
done
((${#kernels[@]})) || kernels=(7.3)

[[ $(uname -m) == x86_64 ]] || skip "boots a kernel for x86-64, and needs its programs"
needs_root "installs packages"
packages gcc qemu-system-x86 cpio xz-utils
temporary
vmarea=$(program vmarea)
fetch_busybox

# Builds the archive that the kernel unpacks into memory and whose /init it runs.
pack() {
    local root=$work/root
    mkdir -p "$root"/{bin,proc,sys,dev,tmp}
    cp ci/checks/lost/init "$root/init"
    cp "$cache/busybox" "$root/bin/busybox"
    cp "$vmarea" "$root/vmarea"
    gcc -O1 -Wall -static -pthread -o "$root/lost_calls" ci/checks/lost/lost_calls.c
    # A static program needs no libraries.
    { ldd "$vmarea" || true; } 2>/dev/null |
        sed -nE 's/.* => (\/[^ ]*) .*/\1/p; s/^\t(\/[^ ]*) .*/\1/p' | xargs -r cp -L --parents -t "$root"
    chmod +x "$root/init" "$root/bin/busybox"
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$work/initramfs"
}

# boot VERSION PROCESSORS: prints the lines of the runs
boot() {
    timeout $((600 + runs * 60)) qemu-system-x86_64 -accel tcg,thread=multi -cpu max,la57=off,pku=off,cx16=off \
        -smp "$2" -m 2G -nodefaults -display none -no-reboot -kernel "$cache/$1/vmlinuz" -initrd "$work/initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check -- $runs $calls" \
        -serial "file:$work/console" -serial "file:$work/lines" </dev/null || tail "$work/console" >&2
    cat "$work/lines"
}

# Judges the lines: what the program counted and the trace lacks must be what was lost.
judge() {
    awk -v name="$1" -v runs="$runs" '
        /^#/ { print; next }
        { done++; missing = 2 * $3 - $4 - $5; total += missing; lost += $6; undecided += $8 }
        $2 || NF != 8 || missing != $6 || $7 { wrong++
            print "wrong: run", $1, "status", $2, "counted", 2 * $3, "recorded", $4 + $5, "lost", $6, "differences", $7 }
        END { print name ":", done + 0, "runs,", total + 0, "calls missing,", lost + 0, "lost,", undecided + 0,
                    "undecided,", wrong + 0, "wrong"
              exit wrong || done != runs }'
}

pack
status=0
for version in "${kernels[@]}"; do
    fetch_kernel "$version"
    for processors in "${cpus[@]}"; do
        boot "$version" "$processors" | judge "Linux $(<"$cache/$version/version"), $processors processors" || status=1
    done
done
exit "$status"
