#!/usr/bin/env bash
# Runs `vmarea-lab conform` on Debian's kernels, booted under QEMU's software emulation from an initramfs
# with a statically linked program and busybox. Prints one line for each kernel. The exit status is 3 if
# something differs.
#
# Installs QEMU, cpio and xz if they are missing and changes nothing else on the machine: the kernels are
# downloaded with separate apt sources and lists, unpacked, and never installed.
# Downloads are kept in ${XDG_CACHE_HOME:-~/.cache}/vmarea/kernels, results in target/kernels; delete the
# cache to get newer kernels.
# With --play it executes a saved sequence instead and prints it with the kernel's results. With --merge it
# runs `vmarea merge` on each kernel, on programs that write and fork; before 6.8 the merge copies.
# With --hazards it merges the programs of ci/run hazards until each of 7.3, 6.12 and 6.1 has N merges, on 6.1 by copy.
# target/kernels/hazards.tsv gets a line for each program as soon as that has ended, and a later run goes on from it;
# with --seed it begins there instead. HAZARDS has further options of ci/checks/hazards/hazards.py (`--only pages --bully stop`).
# usage: ci/run kernels [--ops N] [--minutes M] [--seed N] [--play FILE | --merge] [6.12|6.1|5.10 ...]
#        ci/run kernels --hazards N [--minutes M] [--seed N] [7.3|6.12|6.1 ...]
#        VMAREA=path/of/a/static/vmarea takes that binary instead of building one; without --merge and --hazards, it is a
#        vmarea-lab
. "$(dirname "$0")/../../lib/prepare.sh"

KERNELS=(6.12 6.1 5.10)
. ci/lib/linux.sh


ops=150000 minutes=120 seed='' play='' merge='' hazards='' kernels=()
while (($#)); do
    case $1 in
        --ops | --minutes | --seed | --hazards)
            [[ ${2-} =~ ^[0-9]+$ ]] || fail "$1 needs a number" 2
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        --play)
            [[ -r ${2-} ]] || fail "--play needs a file" 2
            play=$2
            shift 2
            ;;
        --merge)
            merge=1
            shift
            ;;
        *)
            [[ -n ${SUITE[$1]-} ]] || fail "no kernel $1: one of ${!SUITE[*]}" 2
            kernels+=("$1")
            shift
            ;;
    esac
done
[[ -z $hazards ]] || KERNELS=(7.3 6.12 6.1)
program=vmarea-lab
[[ -z $merge$hazards ]] || program=vmarea
((${#kernels[@]})) || kernels=("${KERNELS[@]}")
# A live merge needs Linux 5.13.
if [[ -n $merge ]]; then
    for at in "${!kernels[@]}"; do [[ ${kernels[at]} != 5.10 ]] || unset "kernels[at]"; done
fi

out=${CARGO_TARGET_DIR:-target}/kernels
mkdir -p "$out"
temporary

# Installs the packages for building and booting, from the machine's own suites.
install_tools() {
    local pair packages=()
    for pair in gcc:gcc qemu-system-x86_64:qemu-system-x86 cpio:cpio xz:xz-utils python3:python3; do
        command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
    done
    # No command shows whether the static C library is installed.
    [[ -e /usr/lib/x86_64-linux-gnu/libc.a ]] || packages+=(libc6-dev)
    ((${#packages[@]})) || return 0
    ((EUID == 0)) || fail "missing: run as root: apt-get install ${packages[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
}

build() {
    [[ -z ${VMAREA-} ]] || return 0
    local target=x86_64-unknown-linux-gnu package=(--manifest-path lab/Cargo.toml -p vmarea-lab)
    [[ $program == vmarea-lab ]] || package=(-p vmarea-cli)
    RUSTFLAGS='-C target-feature=+crt-static' \
        cargo build --release --locked --quiet "${package[@]}" --target "$target"
    VMAREA=${CARGO_TARGET_DIR:-target}/$target/release/$program
}

# Adds Python, the programs of ci/run hazards, compiled as there, and the libraries that all of these need.
pack_hazards() {
    local root=$1 room=$1/room programs=crates/cli/tests/programs/hazards files
    mkdir "$room"
    shopt -s extglob
    eval "$(grep '^gcc ' ci/checks/hazards/main.sh)"
    cp ci/checks/hazards/*.py "$root"
    mapfile -t files < <(python3 ci/checks/kernels/python.py ci/checks/hazards/hazards.py)
    cp --parents "${files[@]}" "$root"
    ln -s "${files[0]}" "$root/bin/python3"
    mapfile -t files < <(printf '%s\n' "$(realpath "$VMAREA")" "$room/target" "${files[@]}" | grep -v '\.pyc\?$')
    # Files that need no libraries are reported as errors.
    { ldd "${files[@]}" || true; } 2>/dev/null |
        sed -nE 's/.* => (\/[^ ]*) .*/\1/p; s/^\t(\/[^ ]*) .*/\1/p' | sort -u | xargs cp -L --parents -t "$root"
}

# Builds the archive that the kernel unpacks into memory and whose /init it runs.
pack() {
    local version=$1 root=$work/root-$1
    mkdir -p "$root"/{bin,proc,sys,dev,tmp}
    cp ci/checks/kernels/init "$root/init"
    cp "$cache/busybox" "$root/bin/busybox"
    cp "$cache/$version/brd.ko" "$root/brd.ko"
    cp "$VMAREA" "$root/$program"
    [[ -z $play ]] || cp "$play" "$root/play.json"
    [[ -z $merge ]] || gcc -O2 -Wall -static -pthread -Icrates/repair-capi/tests/programs -o "$root/target" \
        crates/cli/tests/programs/target.c
    [[ -z $hazards ]] || pack_hazards "$root"
    chmod +x "$root/init" "$root/bin/busybox" "$root/$program"
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$work/initramfs-$version"
    rm -r "$root"
}

# Boots a kernel and waits until it has switched the machine off. The kernel must not check the timer at its start:
# on a busy machine it would find none, and panic.
emulate() {
    local version=$1 processors=$2 result=$3 arguments=$4
    # Time limit in case the machine hangs: the requested time, plus time for shrinking and booting.
    timeout $((minutes * 60 + 1800)) qemu-system-x86_64 \
        -accel tcg,thread=multi -cpu max,la57=off,pku=off,cx16=off -smp "$processors" -m 4G \
        -nodefaults -display none -no-reboot \
        -kernel "$cache/$version/vmlinuz" -initrd "$work/initramfs-$version" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check -- $arguments" \
        -serial "file:$out/$version.console" -serial "$result" </dev/null ||
        echo "kernels: Linux $version did not end by itself" >&2
}

# Runs conform or merges; stores the JSON and the console output in $out.
boot() {
    local version=$1 arguments
    arguments="conform --profile linux-$version --ops $ops --minutes $minutes --differences 5"
    [[ -z $seed ]] || arguments+=" --seed $seed"
    [[ -z $play ]] || arguments="conform --profile linux-$version --play /play.json"
    [[ -z $merge ]] || arguments=merge
    rm -f "$out/$version".{json,console}
    emulate "$version" 1 "file:$work/$version.result" "$arguments"
    grep -av '^status ' "$work/$version.result" >"$out/$version.json" || true
    if [[ -n $merge ]]; then
        echo "Linux $(<"$cache/$version/version"):"
        sed 's/^/  /' "$out/$version.json"
        grep -aq '^status 0' "$work/$version.result" || status=1
    fi
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
        pack "$version"
        emulate "$version" 2 stdio "$arguments" | grep -a --line-buffered $'\t' >>"$out/hazards.tsv" || true
    fi
    hazard_results "$version" | awk -F'\t' -v name="Linux $(<"$cache/$version/version")" -v wanted="$hazards" '
        $10 != "passed" { failed++; print "seed", $3, $5, "bully", $6, "by", $8 ":", $10 }
        { merges += $9 }
        END { print name ":", merges + 0, "merges of", NR, "programs,", failed + 0, "failed"
              exit failed || merges < wanted }' || status=1
}

[[ $(uname -m) == x86_64 ]] || fail "builds a program for x86-64, and only on one"
install_tools
build
fetch_busybox
status=0
for version in "${kernels[@]}"; do
    fetch_kernel "$version"
    [[ -z $hazards ]] || { boot_hazards "$version"; continue; }
    pack "$version"
    boot "$version"
    [[ -z $merge ]] || continue
    [[ -z $play ]] || { cat "$out/$version.json"; continue; }
    python3 ci/checks/kernels/report.py "$(<"$cache/$version/version")" "$out/$version" || {
        failed=$?
        # A failed run takes precedence over a difference.
        ((status == 1)) || status=$failed
    }
done
exit "$status"
