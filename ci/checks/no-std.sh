#!/usr/bin/env bash
# Builds the no_std crates against a sysroot that contains only libcore and liballoc, so that any use
# of std, by the crates or by their dependencies, fails to compile.
# That needs no bare-metal target; then the core is built for three of them. First checks that code with std really fails to compile there.
# usage: ci/run no-std
. "$(dirname "$0")/../lib/prepare.sh"

target=$(rustc -vV | sed -n 's/^host: //p')
out=${CARGO_TARGET_DIR:-target}/no-std
mkdir -p "$out"
out=$(cd "$out" && pwd)
bare=$out/sysroot

libraries=lib/rustlib/$target/lib
rm -rf "$bare"
mkdir -p "$bare/$libraries"
for part in core alloc compiler_builtins rustc_std_workspace_core rustc_std_workspace_alloc; do
    for file in "$(rustc --print sysroot)/$libraries/lib$part"-*.r{lib,meta}; do
        [[ ! -e $file ]] || ln -s "$file" "$bare/$libraries/"
    done
done

# compiles SOURCE: true if it compiles against the bare sysroot.
compiles() {
    rustc --edition 2024 --crate-type rlib --crate-name probe --emit metadata \
        --sysroot "$bare" --out-dir "$out" - <<<"$1" >"$out/probe.log" 2>&1
}
compiles '#![no_std] extern crate alloc; pub fn f() -> alloc::vec::Vec<u8> { alloc::vec![1] }' || {
    cat "$out/probe.log" >&2
    echo "no-std: core and alloc alone do not compile: has the sysroot changed its shape?" >&2
    exit 1
}
for uses_std in \
    'pub fn f() -> Vec<u8> { Vec::new() }' \
    '#![no_std] extern crate std; pub fn f() -> std::vec::Vec<u8> { std::vec![1] }' \
    '#![no_std] pub fn f() { let _ = std::time::Instant::now(); }'; do
    if compiles "$uses_std"; then
        echo "no-std: this check is broken, it lets std through: $uses_std" >&2
        exit 1
    fi
done

# With --target the flags apply to the crates but not to build scripts and procedural macros.
RUSTFLAGS="--sysroot $bare" CARGO_TARGET_DIR=$out cargo build --locked --target "$target" \
    -p vmarea-sync -p vmarea-range-tree -p vmarea-merge -p vmarea -p vmarea-soft-platform -p vmarea-memory-set
echo "no-std: ok, and a use of std fails"

# The processors of kernels, without an operating system. A target that cannot be installed is left out.
for bare_target in x86_64-unknown-none aarch64-unknown-none riscv64gc-unknown-none-elf; do
    has_target "$bare_target" 2>/dev/null || {
        echo "no-std: left out: no target $bare_target"
        continue
    }
    CARGO_TARGET_DIR=$out cargo build --quiet --locked --target "$bare_target" -p vmarea
    echo "no-std: ok: $bare_target"
done
