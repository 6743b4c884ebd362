#!/usr/bin/env bash
# Runs the core's tests with AArch64's page sizes instead of x86-64's, and builds the core for bare AArch64 with
# pages of 64 KiB.
# usage: ci/run arch            all tests with 4, 16 and 64 KiB
#        ci/run arch --share    some tests with 64 KiB
. "$(dirname "$0")/../lib/prepare.sh"

share=
sizes=(aarch64-4k aarch64-16k aarch64-64k)
case ${1-} in
--share)
    share=1
    sizes=(aarch64-64k)
    ;;
'') ;;
*) fail "no option $1" 2 ;;
esac

for size in "${sizes[@]}"; do
    echo "arch: $size"
    core=(cargo test --locked --quiet -p vmarea --features "$size")
    if [[ $share ]]; then
        "${core[@]}" --lib --test mmu
        "${core[@]}" --test space -- edges:: special_mappings:: user_copy::
    else
        "${core[@]}"
    fi
done

if rustup target list --installed 2>/dev/null | grep -qx aarch64-unknown-none; then
    cargo build --locked --quiet -p vmarea --target aarch64-unknown-none --features aarch64-64k
else
    echo "arch: left out the build for bare AArch64, whose target is not installed"
fi
echo "arch: ok"
