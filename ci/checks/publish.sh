#!/usr/bin/env bash
# Packs the published crates as `cargo publish` would and builds each of them from its package, without uploading
# anything and without the registry.
# usage: ci/run publish
#        ci/run publish --dry-run    asks the registry, too: cargo publish --dry-run
. "$(dirname "$0")/../lib/prepare.sh"

# Cargo keeps the sources of a package by the place of its target directory and by its version. In a directory that was
# used before, the crates would be built against an older state of each other.
CARGO_TARGET_DIR=$(mktemp -d)
export CARGO_TARGET_DIR
sources=${CARGO_HOME:-$HOME/.cargo}/registry
trap 'find "$sources" -mindepth 2 -maxdepth 2 -name "-*" -newer "$CARGO_TARGET_DIR/begun" -exec rm -rf {} +
      rm -rf "$CARGO_TARGET_DIR"' EXIT
touch "$CARGO_TARGET_DIR/begun"

crates=(-p vmarea-sync -p vmarea-merge -p vmarea-range-tree -p vmarea)
case ${1-} in
--dry-run) cargo publish --dry-run --locked --allow-dirty "${crates[@]}" ;;
'') cargo package --quiet --offline --locked --allow-dirty "${crates[@]}" ;;
*) fail "no option $1" 2 ;;
esac

# What a package must contain, and what must not be in it.
for crate in vmarea-sync vmarea-merge vmarea-range-tree vmarea; do
    listed=$(cargo package --quiet --offline --allow-dirty --list -p "$crate")
    for file in README.md LICENSE-MIT LICENSE-APACHE src/lib.rs; do
        grep -qx "$file" <<<"$listed" || {
            echo "publish: $file is missing in $crate" >&2
            exit 1
        }
    done
done
echo "publish: ok"
