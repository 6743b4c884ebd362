#!/usr/bin/env bash
# Follows the advice of `vmarea explain` for 14 programs of different habits, and compares the promised numbers of
# mappings with those afterwards: they may differ by 2 %, and the safe command must achieve 90 % of what all safe repairs
# achieve. Needs root. Prints one row per command.
# usage: ci/advice.sh [VMAREA]
set -euo pipefail
cd "$(dirname "$0")/.."

vmarea=${1:-target/debug/vmarea}
[[ $# -gt 0 ]] || cargo build --locked -p vmarea-cli
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 ci/advice.py "$vmarea" "$folder"
