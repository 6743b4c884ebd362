#!/usr/bin/env bash
# Records the traces of corpus/ anew, checks them, and writes the table in corpus/README.md. Each trace is at most
# 1 MB, differs in nothing from the kernel when it is replayed, and contains no name of this machine or its user.
# Needs root, because only root can record every fault. Afterwards the golden files must be renewed:
# corpus/README.md says how.
# usage: ci/corpus.sh [NAME...]     ci/corpus.sh --list     ci/corpus.sh --table   writes only the table
#        VMAREA=path/of/vmarea takes that binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -n ${CORPUS_SESSION-} ]] || CORPUS_SESSION=1 exec ci/leash.py 3600 "ci/${0##*/}" "$@"

if [[ ${1-} == --list ]]; then
    exec python3 ci/corpus.py list
fi
packages=$(python3 ci/corpus.py packages "$@")
if [[ -z ${VMAREA-} ]]; then
    cargo build --release --locked --quiet -p vmarea-cli
    VMAREA=${CARGO_TARGET_DIR:-target}/release/vmarea
fi
if [[ ${1-} == --table ]]; then
    exec python3 ci/corpus.py table "$VMAREA"
fi
if ((EUID != 0)); then
    echo "ci/corpus.sh: recordings without root lack faults: run as root" >&2
    exit 5
fi
PACKAGES=$packages ci/install.sh >/dev/null
# The traces contain the paths of files, so the folder has the same name on every machine.
room=/tmp/corpus
mkdir "$room" || { echo "ci/corpus.sh: $room exists: remove it if nothing else uses it" >&2; exit 1; }
trap 'rm -rf "$room"' EXIT
chmod 755 "$room"
cp -r tests/programs "$room/programs"
cp "$VMAREA" "$room/vmarea"
mkdir "$room/built"
read -ra compiled < <(python3 ci/corpus.py compiled "$@")
ci/compile.sh "$room/programs" "$room/built" "${compiled[@]}"
chmod -R a+rX "$room"
# Prefer Debian's own programs to others in the caller's PATH.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
python3 ci/corpus.py record "$room" "$@"
