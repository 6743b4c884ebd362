# Debian's kernels and busybox, downloaded with apt sources and lists of their own and never installed; to be
# sourced. Needs the folder $work; downloads stay in $cache.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/vmarea/kernels
mkdir -p "$cache"
declare -A SUITE=([7.3]=trixie-backports [6.12]=trixie [6.1]=bookworm [5.10]=bullseye)
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
# Not deb.debian.org alone: a release that Debian no longer supports moves to its archive.
MIRRORS=(http://deb.debian.org/debian http://archive.debian.org/debian)

# Configures apt for one suite of one mirror, with separate lists and no installed packages. Uses only the
# proxy of the machine's settings.
own_apt() {
    local suite=$1 mirror=$2 root=$cache/apt/$1 proxy=''
    eval "$(env -u APT_CONFIG apt-config shell proxy Acquire::http::Proxy)"
    rm -rf "$root"
    mkdir -p "$root/etc/apt/preferences.d" "$root/var/lib/apt/lists/partial" "$root/var/cache/apt/archives/partial"
    echo "deb [signed-by=$KEYRING] $mirror $suite main" >"$root/etc/apt/sources.list"
    cat >"$root/apt.conf" <<END
Dir "$root";
Dir::Etc::parts "/dev/null";
Dir::State::status "/dev/null";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Acquire::http::Proxy "$proxy";
END
    export APT_CONFIG=$root/apt.conf
}

# Names the packages with the newest kernel of a version in the suite of own_apt: since Linux 6.19 one with the kernel
# and one with its modules.
kernel_packages() {
    local image parts
    image=$(apt-cache pkgnames "linux-image-$1." | sed -n '/-cloud-amd64$/p' | sort -V | tail -1)
    [[ -n $image ]] || return 0
    parts=$(apt-cache depends "$image" | awk '$1 == "Depends:" && $2 ~ /^linux-(binary|modules)-/ { print $2 }')
    echo "${parts:-$image}"
}

# Downloads the newest package of a suite, or the kernel of a version if the package is `linux-VERSION`, and unpacks
# it into a directory.
fetch() {
    local suite=$1 package=$2 to=$3 mirror packages=("$2")
    for mirror in "${MIRRORS[@]}"; do
        own_apt "$suite" "$mirror"
        apt-get update -qq 2>"$work/apt.log" && break
    done
    [[ $package != linux-* ]] || mapfile -t packages < <(kernel_packages "${package#linux-}")
    ((${#packages[@]})) || fail "no $package in $suite: $(tail -1 "$work/apt.log")"
    (cd "$work" && apt-get download -qq "${packages[@]}") || fail "cannot download ${packages[*]} from $suite"
    unset APT_CONFIG
    mkdir -p "$to"
    for package in "${packages[@]}"; do
        dpkg-deb -x "$work/${package}"_*.deb "$to"
        dpkg-deb -f "$work/${package}"_*.deb Version >"$work/version"
        rm -rf "$work/${package}"_*.deb
    done
}

# Puts a kernel and the one module that is needed into the cache.
fetch_kernel() {
    local version=$1 to=$cache/$1 tree=$work/kernel module
    [[ -e $to/vmlinuz ]] && return
    echo "kernels: downloading Linux $version of Debian ${SUITE[$version]}" >&2
    rm -rf "$tree"
    fetch "${SUITE[$version]}" "linux-$version" "$tree"
    mkdir -p "$to"
    module=$(find "$tree" -name 'brd.ko*')
    case $module in
        *.xz) xz -dc "$module" >"$to/brd.ko" ;;
        *) cp "$module" "$to/brd.ko" ;;
    esac
    cp "$work/version" "$to/version"
    # This file is created last, because its presence means that the cache is complete.
    cp "$(find "$tree" -type f -name 'vmlinuz*')" "$to/vmlinuz"
}

fetch_busybox() {
    [[ -e $cache/busybox ]] && return
    fetch bookworm busybox-static "$work/busybox"
    cp "$work/busybox/bin/busybox" "$cache/busybox"
}
