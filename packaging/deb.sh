#!/usr/bin/env bash
# Makes a Debian package from a built vmarea: the stripped binary, libvmarea_repair_capi.so, man pages, completions, JSON
# schemas, units and alert rules. A second package, vmarea-dbgsym, has the debug information, if the binary has any.
# usage: packaging/deb.sh VMAREA LIBRARY GENERATED OUT
#        GENERATED contains man/ and completions/, made by crates/cli/examples/generate.rs
set -euo pipefail
(($# == 4)) || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
binary=$(realpath "$1") object=$(realpath "$2") generated=$(realpath "$3")
mkdir -p "$4"
out=$(realpath "$4")
cd "$(dirname "$0")/.."

# The package's own revision follows the version.
version=$("$binary" --version | awk '{ print $2 }')-1
architecture=$(dpkg --print-architecture)
# The same sources give the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/vmarea symbols=$work/vmarea-dbgsym

# Installs an ELF file without its debug information, which goes to the other package by its build id.
install_elf() { # FILE TARGET MODE
    install -D -m "$3" "$1" "$root/$2"
    local id
    id=$(readelf --notes "$1" | awk '/Build ID:/ { print $3 }')
    if [[ -n $id ]] && readelf --sections --wide "$1" | grep -q ' \.debug_info '; then
        mkdir -p "$symbols/usr/lib/debug/.build-id/${id:0:2}"
        objcopy --only-keep-debug --compress-debug-sections "$1" "$symbols/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug"
        chmod 644 "$symbols/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug"
    fi
    strip --strip-unneeded --remove-section=.comment "$root/$2"
}
install_elf "$binary" usr/bin/vmarea 755
install_elf "$object" usr/lib/vmarea/libvmarea_repair_capi.so 644

install -d "$root/usr/share/man/man1" "$root/usr/share/doc/vmarea"
for page in "$generated"/man/*.1; do
    gzip -9n <"$page" >"$root/usr/share/man/man1/${page##*/}.gz"
done
install -D -m 644 "$generated/completions/vmarea.bash" "$root/usr/share/bash-completion/completions/vmarea"
install -D -m 644 "$generated/completions/_vmarea" "$root/usr/share/zsh/vendor-completions/_vmarea"
install -D -m 644 "$generated/completions/vmarea.fish" "$root/usr/share/fish/vendor_completions.d/vmarea.fish"
for unit in service timer; do
    install -D -m 644 "packaging/vmarea-metrics.$unit" "$root/lib/systemd/system/vmarea-metrics.$unit"
done
install -D -m 644 -t "$root/usr/share/vmarea" packaging/rules.yml packaging/alerts.yml packaging/dashboard.json
install -D -m 644 crates/repair-capi/include/vmarea_repair.h "$root/usr/include/vmarea_repair.h"
install -D -m 644 -t "$root/usr/share/doc/vmarea/schemas" docs/schemas/*.json
install -m 644 packaging/copyright "$root/usr/share/doc/vmarea/copyright"
gzip -9n <CHANGELOG.md >"$root/usr/share/doc/vmarea/changelog.gz"
maintainer='The vmarea contributors <vmarea@users.noreply.github.com>'
gzip -9n <<END >"$root/usr/share/doc/vmarea/changelog.Debian.gz"
vmarea ($version) unstable; urgency=medium

  * See changelog.gz.

 -- $maintainer  $(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
END

# The oldest C library that has every symbol which the two files need.
libc=$(objdump -T "$root/usr/bin/vmarea" "$root/usr/lib/vmarea/libvmarea_repair_capi.so" |
    grep -o 'GLIBC_2\.[0-9.]*' | sort -uV | tail -1)

package() { # FOLDER CONTROL
    mkdir -p "$1/DEBIAN"
    { cat; echo "Installed-Size: $(du -k -s --apparent-size "$1" | cut -f1)"; } >"$1/DEBIAN/control"
    (cd "$1" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    find "$1" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$1" "$out/${1##*/}_${version}_$architecture.deb"
}
rm -f "$out"/vmarea{,-dbgsym}_*.deb
package "$root" <<END
Package: vmarea
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1
Suggests: prometheus-node-exporter
Section: admin
Priority: optional
Homepage: https://github.com/vmarea/vmarea
Description: explain and merge the memory mappings of Linux processes
 vmarea explain says why each boundary between two mappings of a process
 exists, vmarea merge removes the boundaries that need not exist, and
 vmarea run records a program and replays it in a model of Linux's virtual
 memory areas.
END
if [[ -d $symbols ]]; then
    package "$symbols" <<END
Package: vmarea-dbgsym
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Depends: vmarea (= $version)
Section: debug
Priority: optional
Description: debug symbols for vmarea
 The debug information of the program and of libvmarea_repair_capi.so.
END
fi
