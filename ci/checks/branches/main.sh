#!/usr/bin/env bash
# Counts the branches of Linux's mm/vma.c that the sequences of `vmarea-lab conform` reach. The sequences run on this
# kernel and in the core, without a difference; then the same calls are made in mm/vma.c, compiled for user space with
# gcov, and the list of VMAs must be equal after each. The source is Debian's package, which is fetched by apt, unpacked
# and built in ~/.cache/vmarea/branches; nothing of it is in this repository. Fails if a list differs, if more than 10 % of
# the branches are excluded (branches.toml, with the reasons), or if less than 90 % of the others are reached.
# usage: ci/run branches [-- --ops N] [--seed N] [--source VERSION] [--write]
#        --source: of linux-source-VERSION, 7.2 without it; --write: also writes the section of docs/evidence.md
#        LAB=path/of/vmarea-lab takes that binary instead of building one
. "$(dirname "$0")/../../lib/prepare.sh"

# The first sequence of this seed begins a few mappings below vm.max_map_count.
ops=10000 seed=117 version=7.2 write=
while (($#)); do
    case $1 in
    --ops) ops=$2 && shift 2 ;;
    --seed) seed=$2 && shift 2 ;;
    --source) version=$2 && shift 2 ;;
    --write) write=yes && shift ;;
    *) fail "no option $1" 2 ;;
    esac
done
needs_root
packages gcc liburcu-dev xz-utils
temporary
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vmarea/branches
package=linux-source-$version
suites=(trixie-backports testing sid experimental)

# Downloads the package from the machine's own mirror, with lists of its own.
download() {
    local uri suite apt=$work/apt
    uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | grep -m1 '/debian/\?$') ||
        fail "apt has no source of Debian's packages"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    for suite in "${suites[@]}"; do
        echo "deb $uri $suite main" >"$apt/sources"
        printf '%s\n' "Dir::Etc::sourcelist \"$apt/sources\";" 'Dir::Etc::sourceparts "/dev/null";' \
            "Dir::State::lists \"$apt/lists\";" "Dir::Cache \"$apt/cache\";" 'APT::Sandbox::User "root";' >"$apt/conf"
        if APT_CONFIG=$apt/conf apt-get update -qq 2>"$work/apt.log" &&
            (cd "$work" && APT_CONFIG=$apt/conf apt-get download -qq "$package" 2>>"$work/apt.log"); then
            return
        fi
    done
    fail "no suite serves $package: $(tail -1 "$work/apt.log")"
}

# Unpacks the files that are needed, once.
unpack() {
    local part=$cache/part
    [[ ! -e $cache/$package/version ]] || return 0
    download
    rm -rf "$part" "${cache:?}/$package"
    mkdir -p "$part"
    dpkg-deb --fsys-tarfile "$work/${package}"_*.deb | tar -xO "./usr/src/$package.tar.xz" | xz -dc -T0 |
        tar -C "$part" -x --strip-components=1 "$package"/{tools/testing/{vma,shared},tools/include,tools/lib,tools/arch} \
            "$package"/{mm,lib,include/linux}
    dpkg-deb -f "$work/${package}"_*.deb Version >"$part/version"
    mv "$part" "$cache/$package"
}

# Builds the replay in $work; only mm/vma.c is counted, without optimization.
build() {
    local tree=$cache/$package source flags
    mkdir "$work/generated"
    # The kernel's own makefile generates these files.
    printf '#define CONFIG_%s 1\n' 64BIT PHYS_ADDR_T_64BIT >"$work/generated/bit-length.h"
    echo "#define XA_CHUNK_SHIFT 6" >"$work/generated/map-shift.h"
    cp "$tree/tools/testing/shared/autoconf.h" "$work/generated/"
    flags=(-w -DNUM_VMA_FLAG_BITS=64 -DNUM_MM_FLAG_BITS=64 -Ici/checks/branches -I"$tree/tools/testing/vma"
        -I"$tree/tools/testing/shared" -I"$work" -I"$tree/tools/include" -I"$tree/tools/arch/x86/include" -I"$tree/lib")
    for source in "$tree"/tools/lib/{slab,find_bit,bitmap,hweight,vsprintf}.c \
        "$tree"/tools/testing/shared/{linux,maple-shim}.c; do
        gcc -O1 "${flags[@]}" -c "$source" -o "$work/$(basename "$source" .c).o"
    done
    for source in "$tree/mm/vma_init.c" ci/checks/branches/{main,calls,mremap,world}.c; do
        gcc -O1 "${flags[@]}" -include shim.h -c "$source" -o "$work/$(basename "$source" .c).o"
    done
    gcc -O0 --coverage "${flags[@]}" -include shim.h -c "$tree/mm/vma.c" -o "$work/vma.o"
    gcc --coverage -o "$work/replay" "$work"/*.o -lurcu -lpthread
}

lab=$(program vmarea-lab)
unpack
build
status=0
"$lab" conform --ops "$ops" --seed "$seed" --states "$work/states" >"$work/conform" || status=$?
((status != 5)) || skip "needs root or CAP_BPF and CAP_PERFMON"
((status == 0)) || { cat "$work/conform" && fail "the core differs from this kernel"; }
"$work/replay" "$work/states" >"$work/replayed" || { cat "$work/replayed" && fail "mm/vma.c differs from this kernel"; }
(cd "$work" && gcov -b -c --json-format --stdout vma.gcda) >"$work/gcov"
status=0
python3 ci/checks/branches/report.py "$work/gcov" "$(uname -r)" "$seed" "$(cat "$work/replayed")" \
    "$package $(cat "$cache/$package/version")" >"$work/table" || status=$?
echo >>"$work/table"
if [[ $write ]]; then
    sed -i -e "/^<!-- branches:/r $work/table" -e '/^<!-- branches:/,/^<!-- end of branches/{/^<!--/!d}' docs/evidence.md
fi
cat "$work/table"
exit "$status"
