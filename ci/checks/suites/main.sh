#!/usr/bin/env bash
# Runs test suites of other projects, natively and under `vmarea run`: as root nothing may differ from the kernel,
# and each program must end as it does natively. Prints a line for each run and a table of the suites; exits
# with 3 if a run failed that is not listed in ci/checks/suites/exceptions.
#   kselftest  Linux's selftests, built from Debian's package of the kernel's source
#   ltp        the memory tests of an installed Linux Test Project: LTP=FOLDER
#   stress-ng  the stressors of the class vm of Debian's stress-ng
# usage: ci/run suites [--only TEXT] [--keep FOLDER] [--list] [SUITE]...     (all by default)
#        ci/run suites --share    a subset of selftests and stressors that is short enough for .ci/run
#        VMAREA=path/of/vmarea takes that binary instead of building one; --keep keeps the recordings of
#        failed runs. Built programs are kept in VMAREA_CACHE, by default /var/tmp/vmarea-suites.
. "$(dirname "$0")/../../lib/prepare.sh"

options=() suites=() share= list=
while (($#)); do
    case $1 in
    --only | --keep)
        (($# > 1)) || { echo "suites: $1 needs a value" >&2; exit 2; }
        value=$2
        [[ $1 == --only ]] || value=$(realpath -m "$2")
        options+=("$1" "$value")
        shift
        ;;
    --share) share=1 options+=("$1") ;;
    --list) list=1 options+=("$1") ;;
    kselftest | ltp | stress-ng) suites+=("$1") ;;
    *)
        echo "suites: '$1': one of kselftest, ltp, stress-ng, --share, --only, --keep, --list" >&2
        exit 2
        ;;
    esac
    shift
done
needs_root "what the suites do needs root"
if ((${#suites[@]} == 0)); then
    suites=(kselftest stress-ng)
    [[ $share ]] || suites+=(ltp)
fi

. ci/lib/selftests.sh
folders=(mm mincore memfd clone3 futex proc prctl x86)

# Builds all selftests that can be built, or the subset of --share; sets selftests.
build_selftests() {
    packages $package libcap-dev libnuma-dev liburing-dev xz-utils bzip2 pkg-config
    find_selftests
    # A test that cannot be built here is reported as missing below.
    local make=(make -s -k -j "$(nproc)" -C)
    if [[ $share ]]; then
        local mm=(map_fixed_noreplace mremap_dontunmap mremap_test mlock2-tests mkdirty map_populate mdwe_test
            memfd_secret mseal_test seal_elf)
        "${make[@]}" "$selftests/mm" "${mm[@]/#/$selftests/mm/}"
        "${make[@]}" "$selftests/mincore"
    else
        for folder in "${folders[@]}"; do
            "${make[@]}" "$selftests/$folder" EXTRA_CFLAGS=-DKSFT_SKIP=4 || true
        done
    fi >"$cache/build.log" 2>&1
}

mkdir -p "$cache"
chosen=()
for suite in "${suites[@]}"; do
    case $suite in
    kselftest)
        build_selftests
        chosen+=("kselftest=$selftests")
        ;;
    ltp)
        if [[ -z ${LTP-} || ! -d $LTP/testcases/bin ]]; then
            echo "suites: ltp is skipped: LTP names no installed Linux Test Project"
            continue
        fi
        chosen+=("ltp=$(realpath "$LTP")")
        ;;
    stress-ng)
        packages stress-ng
        chosen+=(stress-ng=)
        ;;
    esac
done
((${#chosen[@]})) || exit 0

[[ -n $list ]] || VMAREA=$(program vmarea release)
export VMAREA=${VMAREA-}

# The mounts and the shared memory of a test are removed when it ends.
exec unshare --mount --ipc --propagation private python3 ci/checks/suites/suites.py "${options[@]}" "${chosen[@]}"
