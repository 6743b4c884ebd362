#!/usr/bin/env bash
# Follows the advice of `vmarea explain` for real programs that are busy while they are repaired, and for small
# programs of 12 habits. The number of mappings that is promised may differ from the number afterwards by 2 %, the
# safe command must achieve 90 % of what all safe repairs achieve, and each program must give right results until its
# end. Needs root. Prints one row per command.
# usage: ci/advice.sh [PROGRAM...]     ci/advice.sh --list
#        VMAREA=path/of/vmarea takes that binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -n ${ADVICE_SESSION-} ]] || ADVICE_SESSION=1 exec ci/leash.py 3600 "ci/${0##*/}" "$@"

if [[ ${1-} == --list ]]; then
    exec python3 ci/advice.py list
fi
packages=$(python3 ci/advice.py packages "$@")
PACKAGES=$packages ci/install.sh >/dev/null
if [[ -z ${VMAREA-} ]]; then
    cargo build --locked --quiet -p vmarea-cli
    VMAREA=${CARGO_TARGET_DIR:-target}/debug/vmarea
fi
# A server may run as an ordinary user, which may be unable to read a checkout.
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
chmod 755 "$room"
cp -r tests/programs "$room/programs"
cp "$VMAREA" "$room/vmarea"
mkdir "$room/built"
gcc -O1 -o "$room/built/boundaries" tests/support/src/boundaries/main.c
python3 ci/attach.py build "$room"
chmod -R a+rX "$room"
# Prefer Debian's own programs to others in the caller's PATH.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
python3 ci/advice.py run "$room" "$@"
