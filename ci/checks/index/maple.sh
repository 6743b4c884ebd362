#!/usr/bin/env bash
# Builds Linux's maple tree as a library for user space, from Debian's package of the kernel's source, and prints the
# library's path: VMAREA_MAPLE=$(ci/checks/index/maple.sh). The library stays in ~/.cache/vmarea/maple; nothing of the kernel is
# copied into this repository. ci/checks/index/peer.c is the part that is ours.
# usage: ci/checks/index/maple.sh
. "$(dirname "$0")/../../lib/prepare.sh"

version=6.12
package=linux-source-$version
packages $package xz-utils

cache=${XDG_CACHE_HOME:-$HOME/.cache}/vmarea/maple
tree=$cache/$(dpkg-query --show --showformat='${Package}_${Version}' "$package")
library=$tree/libmaple.so

# Unpacks the files that are needed, once for each version of the package.
unpack() {
    local top=$package part=$cache/part
    rm -rf "$part"
    mkdir -p "$part"
    xz -dc -T0 "/usr/src/$top.tar.xz" | tar -C "$part" -x --strip-components=1 \
        "$top"/{tools/include,tools/arch,tools/testing/shared,lib/maple_tree.c,include/linux}
    # The kernel's own makefile for these tests generates this file.
    echo "#define CONFIG_64BIT 1" >"$part/tools/testing/shared/bit-length.h"
    mkdir "$part/tools/testing/shared/generated"
    cp "$part/tools/testing/shared/autoconf.h" "$part/tools/testing/shared/generated/"
    echo "#define XA_CHUNK_SHIFT 6" >"$part/tools/testing/shared/generated/map-shift.h"
    rm -rf "$tree"
    mv "$part" "$tree"
}

[[ -d $tree ]] || unpack
if [[ ! $library -nt ci/checks/index/peer.c || ! $library -nt ci/checks/index/maple.sh ]]; then
    # The kernel's optimization level. Its assertions and tracepoints are off, as in a distribution's kernel.
    gcc -O2 -fPIC -shared -fvisibility=hidden -fno-strict-aliasing -w -I"$tree/tools/testing/shared" -I"$tree/tools/include" \
        -I"$tree/lib" -o "$library.part" ci/checks/index/peer.c
    mv "$library.part" "$library"
fi
echo "$library"
