#!/usr/bin/env bash
# Installs /vmarea.deb and uses it; ci/run package runs this in a clean Debian.
set -euo pipefail
dpkg --install /vmarea.deb >/dev/null
fail() { echo "installed: $1" >&2; exit 1; }

vmarea --version | grep -q '^vmarea ' || fail "the program does not say its version"
for command in '' -explain -merge -run -replay -show-maps -trace-info; do
    man "vmarea$command" 2>/dev/null | grep -q '^SYNOPSIS' || fail "there is no man page vmarea$command"
done
bash -c '
    source /usr/share/bash-completion/bash_completion
    source /usr/share/bash-completion/completions/vmarea
    COMP_WORDS=(vmarea expl) COMP_CWORD=1
    _vmarea vmarea expl vmarea
    [[ " ${COMPREPLY[*]} " == *" explain "* ]]
' || fail "bash does not complete a command"
vmarea run -- true >/run.txt || fail "run -- true: status $?"
grep -q . /run.txt || fail "run prints no result"
sleep 60 &
vmarea explain -p $! >/explain.txt || fail "explain -p: status $?"
kill $!
grep -q mappings /explain.txt || fail "explain prints no result"
vmarea run --keep-merged -- true || fail "run --keep-merged: status $?"
grep -q '"title": "vmarea explain --json"' /usr/share/doc/vmarea/schemas/explain.json ||
    fail "the schema of explain is missing"
mkdir -p /var/lib/prometheus/node-exporter
command=$(sed -n 's/^ExecStart=//p' /lib/systemd/system/vmarea-metrics.service)
$command
grep -q '^vmarea_max_map_count [0-9]' /var/lib/prometheus/node-exporter/vmarea.prom || fail "the service writes no metrics"
dpkg --purge vmarea >/dev/null
[[ ! -e /usr/bin/vmarea && ! -e /usr/lib/vmarea ]] || fail "the package leaves files behind"
echo "installed: ok"
