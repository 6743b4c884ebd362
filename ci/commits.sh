#!/usr/bin/env bash
# Subjects of commits: at most 72 characters, in the imperative mood, without a prefix or a full stop.
# Checks the commits since this script was added.
# usage: ci/commits.sh
set -euo pipefail
cd "$(dirname "$0")/.."

since=$(git log --diff-filter=A --format=%H -- ci/commits.sh 2>/dev/null | tail -1)
if [[ -z $since ]]; then
    echo "commits: skipped: the history that would be checked is not here"
    exit
fi
failed=0
fail() {
    echo "commits: $1: $2" >&2
    failed=1
}
while IFS= read -r subject; do
    first=${subject%% *}
    ((${#subject} <= 72)) || fail "$subject" "${#subject} characters, at most 72"
    [[ $subject != *. ]] || fail "$subject" "ends with a full stop"
    case $first in
    *:) fail "$subject" "has a prefix" ;;
    [a-z]*) fail "$subject" "begins in lower case" ;;
    *ed | *ing | A | An | The | Some | There | It | No)
        # Verbs that end in this way in the imperative.
        [[ $first =~ ^(Embed|Feed|Need|Speed|Shed|Bring|String)$ ]] || fail "$subject" "is not in the imperative"
        ;;
    esac
done < <(git log --no-merges --format=%s "$since..HEAD")
((failed)) || echo "commits: ok"
exit "$failed"
