#!/usr/bin/env bash
# Checks the pages of --html in Debian's Chromium, headless: no errors, no network, all controls work by mouse and
# keyboard, pictures are not blank, text has enough contrast, the first picture comes within two seconds. Keeps the
# pages and their screenshots at 1280 and 390 pixels in target/page.
# usage: ci/page.sh            six recorded programs, one with 60,000 mappings and one with a million events, and the rest
#        ci/page.sh --share    without the large ones and without an experiment
#        VMAREA=path/of/vmarea takes that binary instead of building one; LAB the same for vmarea-lab, which makes the
#        page of the experiment
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGES="chromium chromium-driver python3-selenium" ci/install.sh >/dev/null
target=${CARGO_TARGET_DIR:-target}
if [[ -z ${VMAREA-} ]]; then
    cargo build --locked --quiet --workspace --bin vmarea
    VMAREA=$target/debug/vmarea
fi
if [[ -z ${LAB-} && ${1-} != --share ]]; then
    cargo build --locked --quiet --manifest-path lab/Cargo.toml -p vmarea-lab
    LAB=$target/debug/vmarea-lab
fi
export LAB=${LAB-}
out=$target/page built=$target/page/programs
rm -rf "$out"
mkdir -p "$built"
ci/compile.sh tests/programs "$built" many_vmas churn
# Debian's Python, for which the driver is installed.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=ci/page /usr/bin/python3 ci/page/main.py "$VMAREA" "$out" "$built" "$@"
