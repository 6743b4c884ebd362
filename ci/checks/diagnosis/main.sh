#!/usr/bin/env bash
# Judges the cause that `vmarea explain` tells first, against cases with known answers (key.tsv, in the words of
# vocabulary.tsv): lists of mappings in the shape of public reports (lists), real programs that are started and
# looked at (programs), and healthy processes, about which no cause may be told (healthy). A case is right if the told cause
# is an accepted one and accounts for the number of mappings in the key, within 5 %: those that would not be there without the
# cause, so a stack and its guard are two. The key was written by somebody who
# had not seen the causes that vmarea knows; an answer in it changes only with a reason in the commit.
#
# Every third case, by the hash of its name, is held out: it runs only with --held, and has totals of its own.
# Fails if a cause is wrong, if less than 85 % (held out: 75 %) are right, or if a healthy process has a cause.
# usage: ci/run diagnosis [--share] [--lists] [--programs] [--healthy] [--held] [--vmarea FILE] [--only CASE,...]
#        ci/run diagnosis --advised [--vmarea FILE] [CAUSE,...]   follows the advice: counts without and with it
#   --lists, --programs, --healthy   only these; by default all three
#   --share    lists that are not held out: without packages and network, in a minute
#   --held     the third that is held out as well; to be used at the end, not while causes are written
#   --vmarea   the binary to judge, instead of building one
#   --only     these cases, whether held out or not
# names.tsv has the causes of vmarea whose names differ from those of vocabulary.tsv.
. "$(dirname "$0")/../../lib/prepare.sh"

rest=() advised=
while (($#)); do
    case $1 in
        --vmarea)
            [[ -x ${2-} ]] || fail "--vmarea needs a program" 2
            VMAREA=$2
            shift 2
            ;;
        --advised) advised=1 && shift ;;
        *) rest+=("$1") && shift ;;
    esac
done
[[ " ${rest[*]} " == *' --share '* || " ${rest[*]} " == *' --lists '* ]] || needs_root
vmarea=$(program vmarea "${PROFILE-debug}")
export PYTHONDONTWRITEBYTECODE=1
with=(--vmarea "$vmarea" --venv "${CARGO_TARGET_DIR:-target}/diagnosis")
if [[ $advised ]]; then
    exec ci/lib/leash.py 900 python3 ci/checks/diagnosis/advised.py "${with[@]}" "${rest[@]}"
fi
ci/lib/leash.py 3600 python3 ci/checks/diagnosis/diagnosis.py "${with[@]}" "${rest[@]}"
