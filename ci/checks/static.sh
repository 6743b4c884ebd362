#!/usr/bin/env bash
# Builds static programs: vmarea for x86-64, which is then used on this machine, and for AArch64, where the parts that
# trace no process (replay, show --trace, explain --from, trace) are used under QEMU's user emulation and must print what
# the x86-64 program prints.
# usage: ci/run static -- [OUT]
#        OUT: a folder that keeps the programs
. "$(dirname "$0")/../lib/prepare.sh"

packages musl-tools gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
rustup target add x86_64-unknown-linux-musl aarch64-unknown-linux-musl 2>/dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${1:-$work/out}

# Compiles zstd; the Rust toolchain brings musl itself.
export CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld
for architecture in x86_64 aarch64; do
    target=$architecture-unknown-linux-musl
    cargo build --profile packaged --locked --quiet -p vmarea-cli --target "$target" 2> >(grep -v 'cdylib\|generated 1 warning' >&2)
    install -D "${CARGO_TARGET_DIR:-target}/$target/packaged/vmarea" "$out/vmarea-$architecture"
    if readelf --program-headers "$out/vmarea-$architecture" | grep -q INTERP; then
        echo "static: vmarea-$architecture needs a dynamic linker" >&2
        exit 1
    fi
    echo "static: vmarea-$architecture: $(stat -c %s "$out/vmarea-$architecture") bytes"
done

here=("$out/vmarea-x86_64") emulated=(qemu-aarch64 "$out/vmarea-aarch64")
"${here[@]}" record -o "$work/trace" -- true
cat /proc/self/maps >"$work/maps"
"${here[@]}" explain -p $$ >/dev/null

same() { # ARGUMENT...
    "${here[@]}" "$@" >"$work/here"
    "${emulated[@]}" "$@" >"$work/emulated" || { echo "static: $*: status $? for AArch64" >&2; exit 1; }
    [[ -s $work/here ]] || { echo "static: $* prints nothing" >&2; exit 1; }
    diff "$work/here" "$work/emulated" || { echo "static: $* prints something else for AArch64" >&2; exit 1; }
}
same replay "$work/trace"
same show maps --trace "$work/trace"
same show graph --trace "$work/trace"
same trace info "$work/trace"
same trace dump "$work/trace"
same explain --from "$work/maps"
echo "static: ok"
