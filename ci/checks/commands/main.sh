#!/usr/bin/env bash
# Runs vmarea's commands (explain, top, merge by move and by copy, run, record -p, run --keep-merged) on Debian's newest
# kernel under QEMU's software emulation, on a program that counts its own calls and checks its own bytes
# (ci/checks/commands/program.c), and checks what they say: the exit status, and the lines that matter.
# Prints a line for each command, and what it printed if that is wrong. The status is 1 if one failed.
# usage: ci/run commands [VERSION ...]      (7.3 by default; ci/run kernels --list prints what is served)
#        VMAREA=path/of/a/static/vmarea takes that binary instead of building one
#        PROCESSORS=N emulates that many (2)
. "$(dirname "$0")/../../lib/prepare.sh"

task=ci/checks/commands/task
. ci/lib/guest.sh

[[ $(uname -m) == x86_64 ]] || skip "builds a program for x86-64, and only on one"
out=${CARGO_TARGET_DIR:-target}/commands
mkdir -p "$out"
temporary
guest_tools
vmarea=$(static_program vmarea)
fetch_busybox
gcc -O2 -Wall -Wextra -static -o "$work/program" ci/checks/commands/program.c
versions=("$@")
((${#versions[@]})) || versions=(7.3)
status=0
for version in "${versions[@]}"; do
    fetch_kernel "$version" || { status=1 && continue; }
    guest_root "$version" vmarea "$vmarea"
    cp "$work/program" "$root/program"
    guest_pack "$version"
    rm -f "$out/$version.result"
    guest_run "$version" 1800 "${PROCESSORS:-2}" "$out/$version.console" "file:$out/$version.result"
    echo "Linux $(<"$cache/$version/version"):"
    grep -av '^status ' "$out/$version.result" | sed 's/^/  /'
    grep -aq '^status 0' "$out/$version.result" || {
        status=1
        grep -aq '^status ' "$out/$version.result" || echo "  did not end: see $out/$version.console"
    }
done
exit "$status"
