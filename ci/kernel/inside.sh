#!/bin/busybox sh
# Runs every program of /tests inside a machine, in the order of their names, and prints what each prints
# between two marks; what stands before an @ in a name only orders it.
cd /tmp
for test in /tests/*; do
    name=${test#/tests/}
    echo "=== ${name#*@}"
    case $name in
        *.sh) timeout 60 sh "$test" ;;
        *stress) timeout 200 "$test" "${STRESS:-5}" ;;
        *isolation) timeout 900 "$test" "${FORKS:-20}" ;;
        *) timeout 60 "$test" ;;
    esac </dev/null 2>&1
    echo "=== status $?"
done
