# Linux's selftests, unpacked from Debian's package of the kernel's source; to be sourced.

cache=${VMAREA_CACHE:-/var/tmp/vmarea-suites}
version=6.12
package=linux-source-$version

# Unpacks the sources of the selftests outside of the tree, once for each version of the package.
unpack() {
    local top=linux-source-$version
    rm -rf "$cache/part"
    mkdir -p "$cache/part"
    xz -dc -T0 "/usr/src/$top.tar.xz" | tar -C "$cache/part" -x --strip-components=1 \
        "$top"/{Makefile,Kbuild,Kconfig,scripts,include,arch/x86,usr,tools,mm/gup_test.h,lib/test_hmm_uapi.h}
    make -s -C "$cache/part" headers
    rm -rf "$1"
    mv "$cache/part" "$1"
}

# Sets selftests to the folder of the selftests of the installed package, and unpacks them if needed.
find_selftests() {
    local tree
    tree=$cache/$(dpkg-query --show --showformat='${Package}_${Version}' "$package")
    [[ -d $tree ]] || unpack "$tree"
    selftests=$tree/tools/testing/selftests
}
