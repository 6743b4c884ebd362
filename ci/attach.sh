#!/usr/bin/env bash
# Attaches to 20 real programs that run already, and leaves them again: records each for some seconds, checks
# that the program ends as it does without vmarea, and that the replay of the recording gives the kernel's results.
# Prints one row per program. `loop` attaches to one program and leaves it, 200 times.
# usage: ci/attach.sh [--user root|nobody] [--by observing|tracing] [PROGRAM...]     ci/attach.sh --list
#        ci/attach.sh [--by observing|tracing] loop [TIMES]
#        VMAREA=path/of/vmarea takes that binary instead of building one; SECONDS_ATTACHED=N (3) records N seconds
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -n ${ATTACH_SESSION-} ]] || ATTACH_SESSION=1 exec ci/leash.py 7200 "ci/${0##*/}" "$@"

if [[ ${1-} == --list ]]; then
    exec python3 ci/attach.py list
fi
packages=$(python3 ci/attach.py packages "$@")
PACKAGES=$packages ci/install.sh >/dev/null
if [[ -z ${VMAREA-} ]]; then
    cargo build --release --locked --quiet -p vmarea-cli
    VMAREA=${CARGO_TARGET_DIR:-target}/release/vmarea
fi
# A folder that an ordinary user can read; a checkout may not be readable.
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
chmod 755 "$room"
cp -r tests/programs "$room/programs"
cp "$VMAREA" "$room/vmarea"
mkdir "$room/built"
python3 ci/attach.py build "$room"
chmod -R a+rX "$room"
# Prefer Debian's own programs to others in the caller's PATH.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
python3 ci/attach.py run "$room" "$@"
