#!/usr/bin/env bash
# Subjects of commits: at most 72 characters, in the imperative mood, without a prefix or a full stop.
# Checks the commits since this script was added.
# usage: ci/run commits
. "$(dirname "$0")/../lib/prepare.sh"

since=$(git log --diff-filter=A --format=%H -- ci/commits.sh 2>/dev/null | tail -1)
[[ -n $since ]] || skip "the history that would be checked is not here"
failed=0
wrong() {
    echo "commits: $1: $2" >&2
    failed=1
}
while IFS= read -r subject; do
    first=${subject%% *}
    ((${#subject} <= 72)) || wrong "$subject" "${#subject} characters, at most 72"
    [[ $subject != *. ]] || wrong "$subject" "ends with a full stop"
    case $first in
    *:) wrong "$subject" "has a prefix" ;;
    [a-z]*) wrong "$subject" "begins in lower case" ;;
    *ed | *ing | A | An | The | Some | There | It | No)
        # Verbs that end in this way in the imperative.
        [[ $first =~ ^(Embed|Feed|Need|Speed|Shed|Bring|String)$ ]] || wrong "$subject" "is not in the imperative"
        ;;
    esac
done < <(git log --no-merges --format=%s "$since..HEAD")
((failed)) || echo "commits: ok"
exit "$failed"
