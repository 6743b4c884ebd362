#!/usr/bin/env bash
# Sweeps many traces by local processes and on a Ray cluster of two nodes, one of which is killed in the middle.
# usage: ci/sweep.sh            10,000 traces, and the whole cluster is ended in the middle of another sweep
#        ci/sweep.sh --share    200 traces
#        ci/sweep.sh --rates    only the table of rates, in five minutes
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1-} in
'') arguments=(10000) ;;
--share) arguments=(200 --share) ;;
--rates) arguments=(10000 --rates) ;;
*) echo "ci/sweep.sh: no option $1" >&2; exit 2 ;;
esac
PACKAGES=procps ci/install.sh >&2
cargo build --release --locked --quiet -p vmarea-cli
VMAREA=$(realpath "${CARGO_TARGET_DIR:-target}/release/vmarea") "$(ci/venv.sh)/bin/python" ci/sweep.py "${arguments[@]}"
