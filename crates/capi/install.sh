#!/usr/bin/env bash
# Builds the C interface and installs vmarea.h, libvmarea.a, libvmarea.so and vmarea.pc below PREFIX.
# usage: crates/capi/install.sh [--debug] PREFIX
#        DESTDIR=FOLDER    put PREFIX below FOLDER, for a package
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

profile=packaged
if [[ ${1-} == --debug ]]; then
    profile=debug
    shift
fi
if (($# != 1)) || [[ $1 != /* ]]; then
    echo "usage: crates/capi/install.sh [--debug] PREFIX, an absolute path" >&2
    exit 2
fi
prefix=$1
to=${DESTDIR-}$prefix

cd "$here/../.."
options=(--locked -p vmarea-capi)
[[ $profile == debug ]] || options+=(--profile packaged)
cargo build --quiet "${options[@]}"
built=${CARGO_TARGET_DIR:-target}/$profile
version=$(cargo pkgid --locked -p vmarea-capi)
version=${version##*[#@]}

install -d "$to/include" "$to/lib/pkgconfig"
install -m 644 "$here/include/vmarea.h" "$to/include/"
install -m 644 "$built/libvmarea.a" "$to/lib/"
install -m 755 "$built/libvmarea.so" "$to/lib/libvmarea.so.$version"
ln -sf "libvmarea.so.$version" "$to/lib/libvmarea.so.0"
ln -sf libvmarea.so.0 "$to/lib/libvmarea.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/vmarea.pc.in" \
    >"$to/lib/pkgconfig/vmarea.pc"
