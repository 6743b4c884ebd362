#!/usr/bin/env bash
# Merges a live program that does at random, in many threads, whatever a merge could disturb, and checks itself
# (crates/cli/tests/programs/hazards), while another process disturbs the merge. Checks the merge's exit status, that
# the program goes on and ends with its memory, registers, signals and descriptors intact, and that nothing of the
# merge remains in it. Each line of the results names a seed, with which the target makes the same choices again.
# Needs root and Linux 6.8.
# usage: ci/hazards.sh [--vmarea FILE] [--merges N] [--by move|copy] [--seed N] [--seconds N] [--only ACTIVITY,...]
#                      [--bully MODE,...] [--load N] [--results FILE]
#        ci/hazards.sh --known [--vmarea FILE] [--merges N]
#   --vmarea   the binary to test; built by default
#   --merges   number of merges (200); with --known, for each row
#   --seed     seed of the first target; the next one has the next seed
#   --seconds  how long each target runs (8)
#   --only     activities of target.c, also `all` and `random`; by default `pages` and random ones
#   --bully    modes of bully.c, and `second` for a second merge; random ones by default, none with ''
#   --load     number of processes that keep the processors busy
#   --results  a file to which a line for each target is added (target/hazards.tsv), with the step of the agent at each
#              kill; the table at the end is of all lines of this binary
#   --known    searches for the failures of merges before the agent was a thread of its own
set -euo pipefail
cd "$(dirname "$0")/.."

if ((EUID != 0)); then
    echo "hazards: skipped: needs root"
    exit
fi
vmarea=
results=${CARGO_TARGET_DIR:-target}/hazards.tsv
rest=()
while (($#)); do
    case $1 in
    --vmarea) vmarea=$2 && shift ;;
    --results) results=$2 && shift ;;
    *) rest+=("$1") ;;
    esac
    shift
done
if [[ -z $vmarea ]]; then
    ci/install.sh >/dev/null
    cargo build --release --locked --quiet -p vmarea-cli
    vmarea=${CARGO_TARGET_DIR:-target}/release/vmarea
fi
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
programs=crates/cli/tests/programs/hazards
shopt -s extglob
gcc -O2 -g -Wall -Wextra -pthread -o "$room/target" "$programs"/!(bully|kills|record).c
gcc -O2 -g -Wall -Wextra -o "$room/bully" "$programs"/{bully,kills,record,visits}.c
export PYTHONDONTWRITEBYTECODE=1
ci/leash.py 14400 python3 ci/hazards.py "$room" --vmarea "$(realpath "$vmarea")" --results "$results" "${rest[@]}"
