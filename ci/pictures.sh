#!/usr/bin/env bash
# Draws every picture of the documentation anew, from recordings of the programs in docs/example. A picture depends on
# its recording alone, so it is equal on every machine.
# usage: ci/pictures.sh            writes docs/pictures
#        ci/pictures.sh --check    fails if a picture in docs/pictures differs, or if none is made for a file there
#        ci/pictures.sh --record   records the programs anew first; needs root, installs musl-tools
# VMAREA=FILE takes a built program.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1-} in
'' | --check | --record) ;;
*) echo "ci/pictures.sh: no option $1" >&2; exit 2 ;;
esac
if [[ -z ${VMAREA-} ]]; then
    cargo build --release --locked --quiet -p vmarea-cli
    VMAREA=${CARGO_TARGET_DIR:-target}/release/vmarea
fi
VMAREA=$(realpath "$VMAREA")

if [[ ${1-} == --record ]]; then
    PACKAGES=musl-tools ci/install.sh >&2
    # The path is part of the recording.
    built=/tmp/example
    mkdir -p "$built"
    for program in apart pages family; do
        musl-gcc -static -O1 -Wall -Wextra -o "$built/$program" "docs/example/$program.c"
        (cd "$built" && "$VMAREA" record -o "$program.vmtrace" -- "./$program")
        mv "$built/$program.vmtrace" docs/example/
    done
fi

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

# draw NAME anatomy|graph PROGRAM OPTION...
draw() {
    "$VMAREA" show "$2" --trace "docs/example/$3.vmtrace" --svg "$new/$1.svg" "${@:4}" >"$new/text"
    rm "$new/text"
}
draw start anatomy family --no-symbols --at exec
draw apart anatomy apart --no-symbols
draw anon_vma graph apart
draw pages anatomy pages --no-symbols
draw family graph family

if [[ ${1-} != --check ]]; then
    mkdir -p docs/pictures
    rm -f docs/pictures/*.svg
    mv "$new"/*.svg docs/pictures/
    exit
fi
diff -qr "$new" docs/pictures || {
    echo "pictures: docs/pictures is not what vmarea draws: run ci/pictures.sh, and look at the result" >&2
    exit 1
}
echo "pictures: ok"
