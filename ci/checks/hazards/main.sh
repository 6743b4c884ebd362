#!/usr/bin/env bash
# Merges a live program that does at random, in many threads, whatever a merge could disturb, and checks itself
# (crates/cli/tests/programs/hazards), while another process disturbs the merge. Checks the merge's exit status, that
# the program goes on and ends with its memory, registers, signals and descriptors intact, and that nothing of the
# merge remains in it. Each line of the results names a seed, with which the target makes the same choices again.
# With `--by within`, the program merges its own memory instead, in several threads (vmarea_merge_range).
# Needs root and Linux 6.8.
# usage: ci/run hazards [--vmarea FILE] [--merges N] [--by move|copy|within] [--seed N] [--seconds N]
#                      [--only ACTIVITY,...] [--bully MODE,...] [--load N] [--results FILE] [--identity NAME]
#        ci/run hazards --known [--vmarea FILE] [--merges N]
#   --vmarea   the binary to test, built from this checkout; for `within`, libvmarea_repair_capi.so; built by default
#   --merges   number of merges (200); with --known, for each row; with `within`, of those that joined something
#   --by       the way of all merges; by default each target has one of `move` and `copy`
#   --seed     seed of the first target; the next one has the next seed
#   --seconds  how long each target runs (8)
#   --only     activities of target.c, also `all` and `random`; by default `pages` and random ones
#   --bully    modes of bully.c, and `second` for a second merge; random ones by default, none with ''; those that
#              need vmarea do not go with `within`, and `end` only goes with it
#   --load     number of processes that keep the processors busy
#   --results  a file to which a line for each target is added (target/hazards.tsv), with the step of the agent at each
#              kill; the tables at the end are of all lines with the same identity
#   --identity names what is tested, if it is not this checkout; by default a hash of the sources of a live merge
#              (ci/checks/hazards/hazards_identity.py), with --known of the binary
#   --known    searches for the failures of merges before the agent was a thread of its own
# Sums of results files are kept in ci/checks/hazards/counts.tsv by ci/checks/hazards/hazards_counts.py, which prints them.
. "$(dirname "$0")/../../lib/prepare.sh"

needs_root
vmarea=
results=${CARGO_TARGET_DIR:-target}/hazards.tsv
package=vmarea-cli file=vmarea
rest=()
while (($#)); do
    case $1 in
    --vmarea) vmarea=$2 && shift ;;
    --results) results=$2 && shift ;;
    within) package=vmarea-repair-capi file=libvmarea_repair_capi.so ;;&
    *) rest+=("$1") ;;
    esac
    shift
done
if [[ -z $vmarea ]]; then
    packages
    cargo build --release --locked --quiet -p "$package"
    vmarea=${CARGO_TARGET_DIR:-target}/release/$file
fi
temporary
room=$work
programs=crates/cli/tests/programs/hazards
shopt -s extglob
gcc -O2 -g -Wall -Wextra -pthread -Icrates/repair-capi/include -o "$room/target" "$programs"/!(bully|kills|record).c
gcc -O2 -g -Wall -Wextra -o "$room/bully" "$programs"/{bully,kills,record,visits}.c
export PYTHONDONTWRITEBYTECODE=1
ci/lib/leash.py 14400 python3 ci/checks/hazards/hazards.py "$room" --vmarea "$(realpath "$vmarea")" --results "$results" "${rest[@]}"
