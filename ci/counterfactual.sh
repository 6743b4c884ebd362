#!/usr/bin/env bash
# Counts the merges that the kernel's rules refuse because of page offset or anon_vma, and that other
# policies would make: records real programs, evaluates the other policies at every merge attempt
# of the replay, in the same state, and prints the counts of each program and the share over all programs. Fails
# if this share is below 90 % for `thesis` or 99 % for `vmarea`. Only root can see all pages.
# usage: ci/counterfactual.sh [PROGRAM...]     ci/counterfactual.sh --list
#        VMAREA=path/of/vmarea takes that binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD

all=(gcc make redis jemalloc mimalloc commit)
libraries=/usr/lib/$(uname -m)-linux-gnu

command_of() {
    case $1 in
    gcc) command=(gcc -O2 -c -o big.o "$built/big.c") ;;
    make) command=(make -j2 -C "$top/tests/programs/project" "OUT=$PWD/project") ;;
    redis) command=("$top/tests/programs/redis.sh") ;;
    jemalloc) command=(env "LD_PRELOAD=$libraries/libjemalloc.so.2" "$built/allocate") ;;
    mimalloc) command=(env "LD_PRELOAD=$(echo "$libraries"/libmimalloc.so.2*)" "$built/allocate") ;;
    commit) command=("$built/commit") ;;
    *)
        echo "counterfactual: no program '$1': one of ${all[*]}" >&2
        exit 2
        ;;
    esac
}

if [[ ${1-} == --list ]]; then
    printf '%s\n' "${all[@]}"
    exit
fi
chosen=("$@")
((${#chosen[@]})) || chosen=("${all[@]}")
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
built=$room/built
for name in "${chosen[@]}"; do command_of "$name"; done

PACKAGES="libjemalloc2 libmimalloc2.0" ci/install.sh >&2
if [[ -z ${VMAREA-} ]]; then
    cargo build --release --locked --quiet -p vmarea-cli
    VMAREA=${CARGO_TARGET_DIR:-target}/release/vmarea
fi
VMAREA=$(realpath "$VMAREA")
mkdir "$built"
ci/compile.sh tests/programs "$built" allocate commit big.c

export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
reports=()
for name in "${chosen[@]}"; do
    place=$room/$name
    mkdir "$place"
    cd "$place"
    command_of "$name"
    code=0
    TMPDIR=$place timeout --kill-after=10 600 "$VMAREA" run --json="$room/$name.json" -- "${command[@]}" \
        >out 2>err </dev/null || code=$?
    cd "$top"
    # Status 3: something differs from the kernel; ci/programs.sh checks that.
    if ((code != 0 && code != 3)); then
        echo "counterfactual: $name ended with $code" >&2
        tail -n 25 "$place/err" >&2
        exit 1
    fi
    reports+=("$name=$room/$name.json")
    rm -rf "$place"
done
python3 ci/counterfactual.py "${reports[@]}"
