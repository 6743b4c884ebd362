#!/usr/bin/env bash
# Tests the checks themselves: applies deliberate faults, one at a time, each of which must be found. A fault is
# a patch in this folder; its first line is the rule that it breaks, its second line the check that must find it:
# - comparison: random calls differ from this kernel within a million steps (needs root, or CAP_BPF and
#   CAP_PERFMON)
# - kernel: the check of the memory fails after some programs in kernel/ under QEMU
# - CRATE/TESTS [NAME]: a test of TESTS in the crate's folder `tests` fails, or in `src` if TESTS is `lib`, within five
#   minutes; if there is a NAME, the test of that name. A test that never ends does not find the fault.
# A patch with a NAME takes out a mechanism of the papers, which docs/thesis.md and docs/successors.md list.
# The patches are applied to a copy of the tree, which has its own target directory.
# usage: ci/run mutants -- [NAME...]    all faults, or those named
#        ci/run mutants --check      check only that every patch applies
#        MUTANTS=FOLDER             keep the copy there instead of in the user's cache
. "$(dirname "$0")/../../lib/prepare.sh"

patch_of() { printf '%s/ci/checks/mutants/%s.patch' "$PWD" "$1"; }

# folder CRATE: where the crate is
folder() {
    case $1 in
    experiments) echo lab/experiments ;;
    *) echo "crates/$1" ;;
    esac
}

# found_by CHECK [TEST]: whether there is such a check, with such a test
found_by() {
    local at
    case $1 in
    comparison | kernel) return 0 ;;
    */lib) at=$(folder "${1%/*}")/src ;;
    */*)
        at=$(folder "${1%/*}")/tests/${1#*/}
        [[ -d $at ]] || at+=.rs
        ;;
    *) return 1 ;;
    esac
    grep -qrE "fn ${2:-}" "$at" 2>/dev/null
}

check() {
    local name file by test status=0
    for name; do
        file=$(patch_of "$name")
        if ! git apply --check "$file"; then
            echo "mutants: $name does not apply: renew ci/checks/mutants/$name.patch" >&2
            status=1
            continue
        fi
        read -r by test < <(sed -n '2s/^Found by: //p' "$file")
        if ! found_by "$by" "$test"; then
            echo "mutants: $name does not say in its second line what finds it" >&2
            status=1
        elif [[ $test ]] && ! grep -qF "| \`$name\` | \`$test\` |" docs/thesis.md docs/successors.md; then
            echo "mutants: docs/thesis.md and docs/successors.md have no mechanism with the patch $name and the test $test" >&2
            status=1
        fi
    done
    return "$status"
}

mapfile -t names < <(cd ci/checks/mutants && printf '%s\n' *.patch | sed 's/\.patch$//')
if [[ ${1-} == --check ]]; then
    check "${names[@]}"
    echo "mutants: ok, ${#names[@]} patches apply"
    exit
fi
(($# == 0)) || names=("$@")
check "${names[@]}"

room=${MUTANTS:-${XDG_CACHE_HOME:-$HOME/.cache}/vmarea-mutants}
tree=$room/tree
rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z | xargs -0 cp --parents -t "$tree"
# A separate repository, so that git does not treat the copy as a part of this one.
git init --quiet "$tree"
export CARGO_TARGET_DIR=$room/target
# Optimized for the time from a patch to its result. Debug assertions are off, because they would fail before the
# checks do.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=64 CARGO_PROFILE_RELEASE_INCREMENTAL=true
# A fault leaves unused code and imports.
export RUSTFLAGS='-A warnings'

# Each prints what it found and returns 3, or returns 0 if it found nothing.
comparison() {
    cargo build --release --locked --quiet --manifest-path lab/Cargo.toml -p vmarea-conform --example first_difference || return 1
    "$CARGO_TARGET_DIR"/release/examples/first_difference
}

kernel() {
    local said ended=0
    # The kernel has flags of its own, in its folder.
    (cd kernel && env -u RUSTFLAGS cargo build --release --locked --quiet) || return 1
    said=$(KERNEL=$CARGO_TARGET_DIR/x86_64-unknown-none/release/vmarea-kernel kernel/run.sh -- /bin/busybox sh -c 'seq 100 | sort | tail -1; for i in 1 2 3; do /bin/busybox true; done' \
        2>&1) || ended=$?
    ((ended == 98)) || return "$ended"
    sed -n 's/^vmarea: check: //p' <<<"$said" | head -1
    return 3
}

# tests CRATE TEST: runs one test program
tests() {
    local said ended=0 at command
    at=$(folder "$1")
    command=(cargo test --release --locked --quiet --manifest-path "$at/Cargo.toml")
    if [[ $2 == lib ]]; then command+=(--lib); else command+=(--test "$2"); fi
    "${command[@]}" --no-run || return 1
    said=$(timeout 300 "${command[@]}" 2>&1) || ended=$?
    case $ended in
    0) return 0 ;;
    124)
        echo "still running after five minutes"
        return 1
        ;;
    esac
    grep -m1 'of them are wrong' <<<"$said" || sed -n 's/^---- \(.*\) stdout ----$/\1/p' <<<"$said" | paste -sd ' '
    return 3
}

# find_fault CHECK NAME [TEST]: whether the check, and in it the test, finds the fault, in the copy
find_fault() {
    local said status=0
    case $1 in
    */*) said=$(tests "${1%/*}" "${1#*/}") || status=$? ;;
    *) said=$("$1") || status=$? ;;
    esac
    case $status in
    3) printf '%-28s %s: %s\n' "$2" "$1" "$said" ;;
    0) printf '%-28s %s: NOT FOUND\n' "$2" "$1" ;;
    *) printf '%-28s %s: the check itself failed: %s\n' "$2" "$1" "$said" ;;
    esac
    if ((status == 3)) && [[ ${3:-} && $said != *"$3"* ]]; then
        printf '%-28s %s: not by %s\n' "$2" "$1" "$3"
        return 1
    fi
    ((status == 3))
}

missed=()
for name in "${names[@]}"; do
    file=$(patch_of "$name")
    read -r by test < <(sed -n '2s/^Found by: //p' "$file")
    cd "$tree"
    git apply "$file"
    find_fault "$by" "$name" "$test" || missed+=("$name")
    git apply --reverse "$file"
    cd - >/dev/null
done
if ((${#missed[@]})); then
    echo "mutants: not found: ${missed[*]}" >&2
    exit 1
fi
echo "mutants: all of ${#names[@]} found"
