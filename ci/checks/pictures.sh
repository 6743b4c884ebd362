#!/usr/bin/env bash
# Draws every picture of the documentation anew, from recordings of the programs in docs/example. A picture depends on
# its recording alone, so it is equal on every machine.
# usage: ci/run pictures            writes docs/pictures
#        ci/run pictures --check    fails if a picture in docs/pictures differs, or if none is made for a file there
#        ci/run pictures --record   records the programs anew first; needs root, installs musl-tools
# VMAREA=FILE takes a built program.
. "$(dirname "$0")/../lib/prepare.sh"

case ${1-} in
'' | --check | --record) ;;
*) fail "no option $1" 2 ;;
esac
VMAREA=$(program vmarea)

if [[ ${1-} == --record ]]; then
    packages musl-tools
    # The path is part of the recording.
    built=/tmp/example
    mkdir -p "$built"
    for program in apart pages family; do
        musl-gcc -static -O1 -Wall -Wextra -o "$built/$program" "docs/example/$program.c"
        (cd "$built" && "$VMAREA" record -o "$program.vmtrace" -- "./$program")
        mv "$built/$program.vmtrace" docs/example/
    done
fi

temporary

# draw NAME anatomy|graph PROGRAM OPTION...
draw() {
    "$VMAREA" show "$2" --trace "docs/example/$3.vmtrace" --svg "$work/$1.svg" "${@:4}" >"$work/text"
    rm "$work/text"
}
draw start anatomy family --no-symbols --at exec
draw apart anatomy apart --no-symbols
draw anon_vma graph apart
draw pages anatomy pages --no-symbols
draw family graph family

if [[ ${1-} != --check ]]; then
    mkdir -p docs/pictures
    rm -f docs/pictures/*.svg
    mv "$work"/*.svg docs/pictures/
    exit
fi
diff -qr "$work" docs/pictures ||
    fail "docs/pictures is not what vmarea draws: ci/run pictures, and look at the result"
echo "pictures: ok"
