#!/bin/busybox sh
# Runs every program of /tests inside a machine, in the order of their names, and prints what each prints
# between two marks; what stands before an @ in a name only orders it. In kernel/, the check of the memory follows.
cd /tmp
for test in /tests/*; do
    name=${test#/tests/}
    echo "=== ${name#*@}"
    case $name in
        *.sh) timeout 60 sh "$test" ;;
        *stress) timeout 200 "$test" "${STRESS:-5}" ;;
        *) timeout 60 "$test" ;;
    esac </dev/null 2>&1
    echo "=== status $?"
    # What a test leaves behind must not change the result of the next one, nor the check.
    kill -9 -1 2>/dev/null
    if [ -e /proc/vmarea/check ]; then
        echo "=== check $(cat /proc/vmarea/check)"
    fi
done
