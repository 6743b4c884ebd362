#!/usr/bin/env bash
# Builds the programs and a Debian package of them, checks their sizes, and installs the package into a clean Debian 12 in a
# temporary folder, where it runs the commands, the man pages and the completions. The clean Debian is kept in
# ${XDG_CACHE_HOME:-~/.cache}/vmarea; if it cannot be made (no root, no archive), this part is skipped with a message.
# usage: ci/run package -- [--share] [OUT]
#        --share: packs the program and the object that the tests have, and so does not limit their sizes
#        OUT: a folder that keeps the packages
. "$(dirname "$0")/../lib/prepare.sh"

share= profile=packaged options=(--profile packaged -p vmarea-cli -p vmarea-repair-capi)
if [[ ${1-} == --share ]]; then
    share=1 profile=debug options=(--workspace --lib --bins --examples)
    shift
fi
PROGRAM_LIMIT=12000000 OBJECT_LIMIT=1000000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${1:-$work/out}

packages binutils dpkg-dev
# The package has the debug information apart, so the build must contain it.
export CARGO_PROFILE_PACKAGED_DEBUG=line-tables-only CARGO_PROFILE_PACKAGED_STRIP=none
built=${CARGO_TARGET_DIR:-target}/$profile
cargo build --locked --quiet "${options[@]}"
generate=$(example generate)
"$generate" man "$work/generated/man"
"$generate" completions "$work/generated/completions"
packaging/deb.sh "$built/vmarea" "$built/libvmarea_repair_capi.so" "$work/generated" "$out" >/dev/null
package=$(echo "$out"/vmarea_*.deb)
if [[ -z $share && ! -e $(echo "$out"/vmarea-dbgsym_*.deb) ]]; then
    echo "package: there is no debug information" >&2
    exit 1
fi

dpkg-deb --extract "$package" "$work/files"
limit() { # FILE BYTES
    local size
    size=$(stat -c %s "$work/files/$1")
    echo "package: $1: $size bytes, at most $2"
    ((size <= $2)) || { echo "package: $1 is too large" >&2; exit 1; }
}
if [[ -z $share ]]; then
    limit usr/lib/vmarea/libvmarea_repair_capi.so "$OBJECT_LIMIT"
    limit usr/bin/vmarea "$PROGRAM_LIMIT"
fi
echo "package: ${package##*/}: $(stat -c %s "$package") bytes"

python3 ci/checks/alerts/alerts.py "$built/vmarea"
if command -v lintian >/dev/null; then
    lintian --allow-root --suppress-tags initial-upload-closes-no-bugs --fail-on error,warning "$package"
else
    echo "package: skipped lintian, which is not installed"
fi

skip() { echo "package: skipped the installation into a clean Debian: $1"; exit 0; }
((EUID == 0)) || skip "it needs root"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vmarea
clean=$cache/debian-12-$(dpkg --print-architecture).tar
if [[ ! -e $clean ]]; then
    mkdir -p "$cache"
    packages mmdebstrap || skip "mmdebstrap cannot be installed"
    timeout "$([[ -n $share ]] && echo 100 || echo 900)" mmdebstrap --quiet --variant=minbase \
        --include=man-db,bash-completion --dpkgopt='path-exclude=/usr/share/locale/*' \
        bookworm "$clean.new.tar" || { rm -f "$clean.new.tar"; skip "Debian's archive is not reachable, or slow"; }
    mv "$clean.new.tar" "$clean"
fi
mkdir "$work/root"
tar -C "$work/root" -xf "$clean" --exclude='./dev/*'
cp "$package" "$work/root/vmarea.deb"
cp packaging/installed.sh "$work/root/installed.sh"
# The mounts exist only in the new namespace, which ends with the script.
unshare --mount --pid --fork --kill-child bash -euc '
    mount --rbind /dev "$1/dev"
    mount --rbind /sys "$1/sys"
    mount -t proc proc "$1/proc"
    exec chroot "$1" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin bash /installed.sh
' - "$work/root"
echo "package: ok"
