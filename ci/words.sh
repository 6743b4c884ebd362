#!/usr/bin/env bash
# What can be said of files without compiling them: length, module docs, names, no path of anybody's
# machine, no long function; and what the documentation points at exists.
# usage: ci/words.sh
set -euo pipefail
cd "$(dirname "$0")/.."

python3 ci/words.py
python3 ci/links.py
