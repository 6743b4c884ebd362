#!/usr/bin/env bash
# Checks the pages of --html in Debian's Chromium, headless: no errors, no network, all controls work by mouse and
# keyboard, pictures are not blank, text has enough contrast, the first picture comes within two seconds. Keeps the
# pages and their screenshots at 1280 and 390 pixels in target/page.
# usage: ci/run page            six recorded programs, one with 60,000 mappings and one with a million events, and the rest
#        ci/run page --share    without the large ones and without an experiment
#        VMAREA=path/of/vmarea takes that binary instead of building one; LAB the same for vmarea-lab, which makes the
#        page of the experiment
. "$(dirname "$0")/../../lib/prepare.sh"

packages chromium chromium-driver python3-selenium
VMAREA=$(program vmarea debug)
[[ ${1-} == --share ]] || LAB=$(program vmarea-lab debug)
export LAB=${LAB-}
out=${CARGO_TARGET_DIR:-target}/page built=${CARGO_TARGET_DIR:-target}/page/programs
rm -rf "$out"
mkdir -p "$built"
ci/lib/compile.sh tests/programs "$built" many_vmas churn
# Debian's Python, for which the driver is installed.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=ci/lib /usr/bin/python3 ci/checks/page/pages.py "$VMAREA" "$out" "$built" "$@"
