#!/usr/bin/env bash
# Packs the published crates as `cargo publish` would and builds each of them from its package, without uploading
# anything and without the registry.
# usage: ci/publish.sh
#        ci/publish.sh --dry-run    asks the registry, too: cargo publish --dry-run
set -euo pipefail
cd "$(dirname "$0")/.."

crates=(-p vmarea-sync -p vmarea-merge -p vmarea-range-tree -p vmarea)
case ${1-} in
--dry-run) cargo publish --dry-run --locked --allow-dirty "${crates[@]}" ;;
'') cargo package --quiet --offline --locked --allow-dirty "${crates[@]}" ;;
*)
    echo "ci/publish.sh: no option $1" >&2
    exit 2
    ;;
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
