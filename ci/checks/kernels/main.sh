#!/usr/bin/env bash
# Runs `vmarea-lab conform` on Debian's kernels, booted under QEMU's software emulation from an initramfs
# with a statically linked program and busybox. Prints one line for each kernel. The exit status is 3 if
# something differs.
#
# VERSION is one that Debian's suites serve (--list), like 6.12 or 6.12.95; which they are, and where, the settings of
# this machine's apt tell (ci/lib/served.py). Installs QEMU, cpio and xz if they are missing and changes nothing else on
# the machine: the kernels are unpacked, and never installed. They are kept in
# ${XDG_CACHE_HOME:-~/.cache}/vmarea/kernels, results in target/kernels; delete the cache to get newer ones.
#
# --play runs a saved sequence instead and prints it with the kernel's results.
# --merge runs `vmarea merge` on each kernel, on programs that write and fork; before 6.8 the merge copies.
# --changes prints what a new kernel changed: it runs the saved sequences of lab/conform/tests/conform (the probe) and
#   random calls, takes over each rule that explains a difference, and then merges. Differences that one rule explains
#   are below that rule, and the others below "no one rule": those need a new one. With --profile, against other rules.
# --count runs conform until N steps of these sources have been compared on each kernel (`here` is this machine's own),
#   10,000 for each seed. target/kernels/conform.tsv gets a line for each seed as soon as that has ended, and
#   lab/results/conform.tsv one for each run; a later run goes on from both.
# --recall also finds after how many steps each setting is tested, for ci/run recall, which calls it.
# --hazards merges the programs of ci/run hazards until each of 7.3, 6.12 and 6.1 has N merges, on 6.1 by copy.
#   target/kernels/hazards.tsv gets a line for each program as soon as that has ended, and a later run goes on from it;
#   with --seed it begins there instead. HAZARDS has further options of ci/checks/hazards/hazards.py (`--only pages --bully stop`).
# usage: ci/run kernels [--ops N] [--minutes M] [--seed N] [--profile P] [--play FILE | --merge | --recall] [VERSION ...]
#        ci/run kernels --list
#        ci/run kernels --changes [--ops N] [--minutes M] [--seed N] [--profile P] VERSION ...
#        ci/run kernels --count N [--minutes M] [VERSION | here ...]
#        ci/run kernels --hazards N [--minutes M] [--seed N] [7.3|6.12|6.1 ...]
#        VMAREA=path/of/a/static/vmarea and LAB=path/of/a/static/vmarea-lab take these binaries instead of building them
. "$(dirname "$0")/../../lib/prepare.sh"

KERNELS=(7.3 6.12 6.1 5.10)
task=ci/checks/kernels/task
. ci/lib/guest.sh

ops=150000 minutes=120 seed='' profile=linux play='' merge='' changes='' count='' hazards='' recall='' kernels=()
while (($#)); do
    case $1 in
        --ops | --minutes | --seed | --count | --hazards)
            [[ ${2-} =~ ^[0-9]+$ ]] || fail "$1 needs a number" 2
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        --profile)
            profile=${2?--profile needs a policy}
            shift 2
            ;;
        --play)
            [[ -r ${2-} ]] || fail "--play needs a file" 2
            play=$2
            shift 2
            ;;
        --merge | --changes | --recall)
            printf -v "${1#--}" %s 1
            shift
            ;;
        --list)
            list_kernels
            exit
            ;;
        *)
            [[ $1 =~ ^[0-9]+\.[0-9]+([.-][a-z0-9]+)?$ || $1 == here ]] || fail "$1 is no version of Linux: see --list" 2
            kernels+=("$1")
            shift
            ;;
    esac
done
[[ -z $hazards ]] || KERNELS=(7.3 6.12 6.1)
[[ -z $changes ]] || ((${#kernels[@]})) || fail "--changes needs a version" 2
((${#kernels[@]})) || kernels=("${KERNELS[@]}")
# A live merge needs Linux 5.13.
if [[ -n $merge ]]; then
    for at in "${!kernels[@]}"; do [[ ${kernels[at]} != 5.10 ]] || unset "kernels[at]"; done
fi

out=${CARGO_TARGET_DIR:-target}/kernels
mkdir -p "$out"
temporary

# Adds Python, the programs of ci/run hazards, compiled as there, and the libraries that all of these need.
pack_hazards() {
    local room=$root/room programs=crates/cli/tests/programs/hazards files
    mkdir "$room"
    shopt -s extglob
    eval "$(grep '^gcc ' ci/checks/hazards/main.sh)"
    cp ci/checks/hazards/*.py "$root"
    mapfile -t files < <(python3 ci/checks/kernels/python.py ci/checks/hazards/hazards.py)
    cp --parents "${files[@]}" "$root"
    ln -s "${files[0]}" "$root/bin/python3"
    mapfile -t files < <(printf '%s\n' "$vmarea" "$room/target" "${files[@]}" | grep -v '\.pyc\?$')
    # Files that need no libraries are reported as errors.
    { ldd "${files[@]}" || true; } 2>/dev/null |
        sed -nE 's/.* => (\/[^ ]*) .*/\1/p; s/^\t(\/[^ ]*) .*/\1/p' | sort -u | xargs cp -L --parents -t "$root"
}

# Builds the machine for a kernel and a program: vmarea or vmarea-lab.
pack() {
    guest_root "$1" "$2" "$([[ $2 == vmarea ]] && echo "$vmarea" || echo "$lab")"
    [[ -z $play ]] || cp "$play" "$root/play.json"
    [[ -z $changes ]] || cp -r lab/conform/tests/conform "$root/probe"
    [[ $2 == vmarea-lab || -n $hazards ]] || gcc -O2 -Wall -static -pthread -Icrates/repair-capi/tests/programs \
        -o "$root/target" crates/cli/tests/programs/target.c
    [[ -z $hazards ]] || pack_hazards
    guest_pack "$1"
}

# Boots a kernel; the time limit, in case the machine hangs, is the requested time, plus time for shrinking and booting.
emulate() { guest_run "$1" $((minutes * 60 + 1800)) "$2" "$out/$1.console" "$3" "${@:4}"; }

# Runs the machine for a kernel; stores its result and the console output in $out.
boot() {
    local version=$1
    rm -f "$out/$version".{json,console}
    emulate "$version" 1 "file:$work/$version.result" "${@:2}"
    grep -avE '^(status|said) ' "$work/$version.result" >"$out/$version.json" || true
    said=$(sed -n 's/^said //p' "$work/$version.result")
}

# Runs conform; prints its result.
conform() {
    local version=$1 arguments=(--profile "$profile")
    pack "$version" vmarea-lab
    if [[ -n $play ]]; then
        arguments+=(--play /play.json)
    else
        arguments+=(--ops "$ops" --time "${minutes}m" --differences $((changes ? 100 : 5)))
        [[ -z $seed ]] || arguments+=(--seed "$seed")
        [[ -z $changes ]] || arguments+=(--changes /probe)
        [[ -z $recall ]] || arguments+=(--recall)
    fi
    boot "$version" conform "${arguments[@]}"
    [[ -z $play ]] || { cat "$out/$version.json" && return; }
    # The merge that follows writes to the same file.
    [[ -z $changes ]] || cp "$out/$version.json" "$out/$version-changes.json"
    python3 ci/checks/kernels/report.py "$(<"$cache/$version/version")" "$out/$version${changes:+-changes}" "$said" || {
        failed=$?
        # A failed run takes precedence over a difference.
        ((status == 1)) || status=$failed
    }
}

merge() {
    pack "$1" vmarea
    boot "$1" merge
    echo "Linux $(<"$cache/$1/version"), vmarea merge:"
    sed 's/^/  /' "$out/$1.json"
    grep -aq '^status 0' "$work/$1.result" || { status=1 && echo "  failed: ${said:-see $out/$1.console}"; }
}

# Counts steps until there are enough.
count() {
    local version=$1 release seeds first times processed=(python3 ci/checks/kernels/counts.py)
    release=$(uname -r)
    [[ $version == here ]] || release=$(<"$cache/$version/version")
    read -r first times steps < <("${processed[@]}" next "$out" "$release" "$count")
    if ((times)); then
        if [[ $version == here ]]; then
            count_here "$first" "$times" "$steps"
        else
            pack "$version" vmarea-lab
            emulate "$version" 1 stdio count "$first" "$steps" "$times"
        fi | timeout $((minutes * 60)) "${processed[@]}" add "$out" "$release" || true
    fi
    "${processed[@]}" sum "$out" "$release" "$count" || status=$?
}

# Prints on this kernel what `count` of the task sends.
count_here() {
    local seed went
    for ((seed = $1; seed < $1 + $2; seed++)); do
        went=0
        "$lab" conform --seed "$seed" --ops "$3" --differences 5 --json="$work/counted" >"$work/text" 2>"$work/said" || went=$?
        echo "seed $seed"
        cat "$work/counted"
        echo "went $went $(tail -n 1 "$work/said")"
    done
}

# Prints the results of ci/checks/hazards/hazards.py for a kernel and these sources.
hazard_results() {
    awk -F'\t' -v release="$1." -v identity="$identity" 'index($2, release) == 1 && $4 == identity' "$out/hazards.tsv"
}

# Merges programs until there are enough merges. Before 6.8, pages cannot be moved.
boot_hazards() {
    local version=$1 merges following arguments identity
    identity=$(python3 ci/checks/hazards/hazards_identity.py)
    touch "$out/hazards.tsv"
    read -r merges following < <(hazard_results "$version" |
        awk -F'\t' '{ merges += $9; if ($3 >= seed) seed = $3 + 1 } END { print merges + 0, seed + 0 }')
    [[ -z $seed ]] || merges=0 following=$seed
    if ((merges < hazards)); then
        arguments="hazards --merges $((hazards - merges)) --seed $following --seconds 60 --identity $identity ${HAZARDS-}"
        [[ $version != 6.1 ]] || arguments+=' --by copy'
        pack "$version" vmarea
        emulate "$version" 2 stdio "$arguments" | grep -a --line-buffered $'\t' >>"$out/hazards.tsv" || true
    fi
    hazard_results "$version" | awk -F'\t' -v name="Linux $(<"$cache/$version/version")" -v wanted="$hazards" '
        $10 != "passed" { failed++; print "seed", $3, $5, "bully", $6, "by", $8 ":", $10 }
        { merges += $9 }
        END { print name ":", merges + 0, "merges of", NR, "programs,", failed + 0, "failed"
              exit failed || merges < wanted }' || status=1
}

[[ $(uname -m) == x86_64 ]] || fail "builds a program for x86-64, and only on one"
guest_tools
vmarea='' lab=''
[[ -n $merge$hazards ]] || lab=$(static_program vmarea-lab)
[[ -z $merge$hazards$changes ]] || vmarea=$(static_program vmarea)
fetch_busybox
status=0
for version in "${kernels[@]}"; do
    [[ $version == here ]] || fetch_kernel "$version" || { status=1 && continue; }
    if [[ -n $hazards ]]; then
        boot_hazards "$version"
    elif [[ -n $count ]]; then
        count "$version"
    elif [[ -n $merge ]]; then
        merge "$version"
    else
        conform "$version"
        if [[ -n $changes ]]; then merge "$version"; fi
    fi
done
exit "$status"
