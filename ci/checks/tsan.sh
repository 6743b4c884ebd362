#!/usr/bin/env bash
# Runs the tests with real threads under ThreadSanitizer: the stress tests of the locks and of the tree, and in
# the core page faults, changes of the address space and walks of the reverse map, all concurrently. Needs a
# nightly toolchain with rust-src and the sanitizer's runtime; otherwise prints a note and passes.
# ThreadSanitizer does not support fences. The tree's readers use fences only around atomics, which it
# does not report; the models of ci/run loom cover the rest.
# usage: ci/run tsan -- [TEST-NAME ...]
. "$(dirname "$0")/../lib/prepare.sh"

toolchain=${TSAN_TOOLCHAIN:-nightly}
target=$(rustc -vV | sed -n 's/^host: //p')
sysroot=$(rustc "+$toolchain" --print sysroot 2>/dev/null) || sysroot=
if [[ -z $sysroot || ! -d $sysroot/lib/rustlib/src/rust/library ]] ||
    ! compgen -G "$sysroot/lib/rustlib/$target/lib/*tsan*" >/dev/null; then
    echo "tsan: skipped, needs a $toolchain toolchain with rust-src and ThreadSanitizer" >&2
    exit 0
fi

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/tsan
export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=thread"
export TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}"

test=(cargo "+$toolchain" test --release --locked --quiet -Zbuild-std --target "$target")
"${test[@]}" -p vmarea-sync -p vmarea-range-tree --test stress -- "$@"
"${test[@]}" -p vmarea --test space -- "${@:-threads::}"
echo "tsan: ok"
