# What the checks in shell need before they begin; sourced by the first line of each.

check_name=$(basename "${0%.*}")
[[ $check_name != main ]] || check_name=$(basename "$(dirname "$0")")
check_file=$(realpath "$0" 2>/dev/null || true)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# fail WHY [STATUS]
fail() {
    echo "$check_name: $1" >&2
    exit "${2:-1}"
}

# skip WHY: ends the check, which passes
skip() {
    echo "$check_name: skipped: $1"
    exit 0
}

needs_root() { ((EUID == 0)) || skip "${1:-needs root}"; }

# packages NAME...: installs what all checks need, and these packages of Debian
packages() { ci/lib/install.sh "$@" >&2; }

# Sets work to a folder that is removed at the end.
temporary() {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
}

# program vmarea|vmarea-lab [PROFILE]: prints the path of the program that VMAREA or LAB names, or else builds it: as
# `cargo install` does (release), as the packages have it (packaged), or as the tests have it (debug). Without an argument,
# PROFILE in the environment decides, or it is release.
program() {
    local built=${VMAREA-} workspace=Cargo.toml package=vmarea-cli profile=${2:-${PROFILE-release}} options
    [[ $1 == vmarea ]] || { built=${LAB-} workspace=lab/Cargo.toml package=vmarea-lab; }
    if [[ -z $built ]]; then
        options=(-p "$package" --profile "$profile")
        # Examples have the features of the tests, and so has all that they are built with.
        [[ $profile != debug ]] || options=(--workspace --bin "$1" --examples)
        cargo build --locked --quiet --manifest-path "$workspace" "${options[@]}" >&2
        built=${CARGO_TARGET_DIR:-target}/$profile/$1
    fi
    realpath "$built"
}

# example NAME: builds an example of a crate with what the tests have built, and prints its path
example() {
    cargo build --workspace --locked --quiet --example "$1" >&2
    realpath "${CARGO_TARGET_DIR:-target}/debug/examples/$1"
}

# True if a target of Rust is installed or can be. Checks run beside each other, which rustup does not expect.
has_target() {
    rustup target list --installed 2>/dev/null | grep -qx "$1" || flock ci/lib rustup target add "$1" >&2
}

# leash [--session] SECONDS ARGUMENT...: begins the check anew with these arguments under ci/lib/leash.py; in a session
# of its own, its priority can be raised
leash() {
    local before=()
    [[ -z ${LEASHED-} ]] || return 0
    [[ $1 != --session ]] || { before=(setsid -w) && shift; }
    LEASHED=1 exec "${before[@]}" ci/lib/leash.py "$1" "$check_file" "${@:2}"
}
