#!/usr/bin/env bash
# Finds which rules random calls test. While `vmarea-lab conform` compares, each of its sequences is executed in the core
# again under every policy that differs in one setting; the first step that is not as in the kernel finds the setting.
# Each one must be found within 200,000 steps, on this kernel or another one (docs/recall.md), unless
# ci/checks/recall/reasons.toml says why no call can show it.
#
# Other kernels run under QEMU (ci/run kernels --recall). Results are kept in lab/results/recall.tsv, one line for each
# kernel and setting; those of a kernel that is run again are replaced.
# usage: ci/run recall [--ops N] [--seed N] [--write] [here | VERSION ...]
#        ci/run recall --check
#   --ops    number of steps (200,000)
#   --seed   seed of the sequences (1)
#   --write  keeps the results, and writes the table in docs/recall.md
#   --check  runs nothing: the table is made from the kept results, and each rule has a row
#   VERSION  as in ci/run kernels; `here` is this machine's kernel, and the default
#   LAB=path/of/vmarea-lab takes that binary instead of building one; for a VERSION it must be linked statically
. "$(dirname "$0")/../../lib/prepare.sh"

ops=200000 seed=1 write='' kernels=()
while (($#)); do
    case $1 in
        --ops | --seed)
            [[ ${2-} =~ ^[0-9]+$ ]] || fail "$1 needs a number" 2
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        --check) exec python3 ci/checks/recall/recall.py --check ;;
        --write) write=--write && shift ;;
        *) kernels+=("$1") && shift ;;
    esac
done
((${#kernels[@]})) || kernels=(here)
temporary
files=()
for version in "${kernels[@]}"; do
    if [[ $version == here ]]; then
        lab=$(program vmarea-lab release)
        status=0
        "$lab" conform --recall --ops "$ops" --seed "$seed" --json="$work/here.json" >/dev/null || status=$?
        # Without permission to read the kernel's own view, nothing is compared.
        ((status != 5)) || { echo "recall: skipped, needs root or CAP_BPF and CAP_PERFMON" >&2 && exit 0; }
        ((status == 0)) || fail "conform ended with status $status"
        files+=("$work/here.json")
    else
        ci/run kernels --recall --ops "$ops" --seed "$seed" "$version" >&2 || fail "no result from Linux $version"
        files+=("${CARGO_TARGET_DIR:-target}/kernels/$version.json")
    fi
done
python3 ci/checks/recall/recall.py $write "${files[@]}"
