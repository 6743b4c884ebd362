#!/usr/bin/env bash
# Runs a program in this kernel under QEMU: builds the kernel and an initramfs, boots, prints what the
# program prints, and exits with its status.
# Needs qemu-system-x86, busybox-static and `rustup target add x86_64-unknown-none`.
# usage: kernel/run.sh [OPTION]... -- PROGRAM [ARGUMENT]...
#   --smp N         CPUs (2)
#   --memory SIZE   memory, as QEMU takes it (512M)
#   --limit SIZE    memory for pages of programs and files, with K, M or G (all that is there)
#   --swap SIZE     a swap device of this size, which is a part of the memory (none)
#   --reclaim       swap out pages all the time, and not only when memory is short
#   --policy NAME   the core's merge policy (linux-6.12)
#   --lock KIND     the lock in each VMA: mmap (none), flagged, aligned or boxed, instead of Linux's since 6.15
#   --icount        count instructions: one CPU, and time is the number of instructions; the CPU lacks the fast
#                   string instructions by bytes, so that every kernel clears and copies pages by words
#   --widen N       wait N turns of a loop before each TLB flush, so that a late flush shows
#   --flush-local   leave stale entries in the TLBs of other CPUs, so that a test of isolation fails
#   --trace         print every system call
#   --add FILE[=PATH]  put a file into the initramfs, under /bin or PATH; may be repeated
#   --linux VMLINUZ    boot this kernel of Linux instead, with the same initramfs
#   --console       print everything that comes over the serial line
#   --seconds N     give up after so long (120)
# Exits with 99 after a panic, whose backtrace goes to standard error; with 98 if frames were lost or the core's
# structures were damaged when the machine ended; with 125 if the program did not end.
# KERNEL=FILE takes a built kernel. A terminal as standard input is the program's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

fail() {
    echo "kernel/run.sh: $1" >&2
    exit "${2:-2}"
}

smp=2 memory=512M options=() icount= add=() linux= console= seconds=120 lock=
while (($#)) && [[ $1 != -- ]]; do
    case $1 in
    --icount) icount=1 ;;
    --flush-local) options+=(flush=local) ;;
    --reclaim) options+=(reclaim=always) ;;
    --trace) options+=(trace=1) ;;
    --console) console=1 ;;
    --smp | --memory | --limit | --swap | --lock | --policy | --widen | --add | --linux | --seconds)
        (($# > 1)) || fail "$1 needs a value"
        case $1 in
        --limit) options+=("memory=$2") ;;
        --policy | --swap | --widen) options+=("${1#--}=$2") ;;
        --add) add+=("$2") ;;
        *) printf -v "${1#--}" %s "$2" ;;
        esac
        shift
        ;;
    *) fail "no option $1: see the head of kernel/run.sh" ;;
    esac
    shift
done
shift || true
(($#)) || fail "no program: kernel/run.sh [OPTION]... -- PROGRAM [ARGUMENT]..."
command -v qemu-system-x86_64 >/dev/null || fail "no qemu-system-x86_64: install qemu-system-x86"
busybox=$(command -v busybox) || fail "no busybox: install busybox-static"

if [[ -z $linux ]]; then
    if [[ -z ${KERNEL-} ]]; then
        (cd "$here" && cargo build --release --locked --quiet ${lock:+--features "lock-$lock"})
        KERNEL=${CARGO_TARGET_DIR:-$here/target}/x86_64-unknown-none/release/vmarea-kernel
    fi
    image=$KERNEL
else
    image=$linux
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The archive: busybox, the files that were asked for, and a script with the program's arguments.
pack() {
    local root=$work/root item path
    mkdir -p "$root"/{bin,proc,sys,dev,tmp}
    cp "$busybox" "$root/bin/busybox"
    ln -s busybox "$root/bin/sh"
    for item in "${add[@]}"; do
        path=/bin/$(basename "$item")
        [[ $item != *=* ]] || path=${item#*=}
        mkdir -p "$root/$(dirname "$path")"
        cp "${item%%=*}" "$root$path"
    done
    cp "$here/init" "$root/init"
    {
        printf 'exec'
        for item in "$@"; do
            printf " '%s'" "${item//\'/\'\\\'\'}"
        done
        echo
    } >"$root/program"
    chmod +x "$root/init" "$root/bin/busybox"
    (cd "$root" && find . | LC_ALL=C sort | cpio --quiet -o -H newc) >"$work/initramfs"
}
pack "$@"

machine=(-accel tcg,thread=multi -smp "$smp") cpu=max,la57=off,pku=off
if [[ $icount ]]; then
    machine=(-accel tcg,thread=single -icount shift=0,sleep=off -smp 1)
    cpu+=,erms=off,fsrm=off
fi
append=${options[*]-}
if [[ $linux ]]; then
    append="console=ttyS0 quiet panic=-1 mitigations=off nopti norandmaps vdso=0 transparent_hugepage=never"
fi

# What the program prints stands between two marks, and its status after the second one.
show() {
    if [[ $console ]]; then
        tee "$work/console"
    else
        tee "$work/console" | tr -d '\r' | awk '
            /^== begin$/ { on = 1; next }
            # An end of line comes before the mark.
            /^== status [0-9]+$/ { for (; empty > 1; empty--) print ""; on = 0 }
            # What the kernel itself says goes to standard error.
            /^vmarea: / { if (on || /panic|check: (lost|violation|busy)|out of memory/) print > "/dev/stderr"; next }
            on && /^$/ { empty++; next }
            on { for (; empty; empty--) print ""; print; fflush() }'
    fi
}

# The functions and lines of the addresses in a panic's backtrace.
backtrace() {
    local address calls=()
    while read -r address; do
        # The call is before the address at which its caller goes on.
        calls+=("$(printf '0x%x' $((address - 1)))")
    done < <(tr -d '\r' <"$work/console" | sed -n 's/^vmarea: panic: called from \(0x[0-9a-f]*\)$/\1/p')
    if ((${#calls[@]})) && command -v addr2line >/dev/null; then
        addr2line -Cfipe "$image" "${calls[@]}" >&2
    fi
}

ended=0
{
    timeout --foreground "$seconds" qemu-system-x86_64 "${machine[@]}" -cpu "$cpu" -m "$memory" \
        -nodefaults -display none -no-reboot -device isa-debug-exit,iobase=0xf4,iosize=4 \
        -kernel "$image" -initrd "$work/initramfs" -append "$append" -serial stdio || echo $? >"$work/ended"
} | show
[[ ! -e $work/ended ]] || ended=$(<"$work/ended")
status=$(tr -d '\r' <"$work/console" | sed -n 's/^== status \([0-9]*\)$/\1/p' | tail -1)
# QEMU ends with twice the kernel's code, and one.
case $ended in
99)
    backtrace
    fail "the kernel panicked" 99
    ;;
5) fail "the check of the memory failed" 98 ;;
esac
if [[ -z $status ]]; then
    tr -d '\r' <"$work/console" | tail -5 >&2
    fail "the program did not end" 125
fi
exit "$status"
