#!/usr/bin/env bash
# Checks that need no compiler: module docs, names, no path of one machine; and that all link targets of the
# documentation exist.
# usage: ci/words.sh
set -euo pipefail
cd "$(dirname "$0")/.."

python3 ci/words.py
python3 ci/links.py
