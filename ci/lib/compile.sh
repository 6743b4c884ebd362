#!/usr/bin/env bash
# Compiles programs that other scripts record, from the sources in tests/programs.
# usage: ci/lib/compile.sh SOURCES OUT NAME...
#        SOURCES: tests/programs or a copy of it; OUT: an existing folder for the results
set -euo pipefail

sources=$1 out=$2
shift 2
for name; do
    case $name in
    allocate | many_threads | threads) gcc -O2 -pthread -o "$out/$name" "$sources/$name.c" ;;
    churn) gcc -O1 -g -o "$out/$name" "$sources/$name.c" ;;
    commit | edges | many_vmas) gcc -O2 -o "$out/$name" "$sources/$name.c" ;;
    static) gcc -O2 -static -o "$out/$name" "$sources/$name.c" ;;
    sanitized) gcc -O1 -g -fsanitize=address -pthread -o "$out/$name" "$sources/$name.c" ;;
    big.c) python3 "$sources/big_c.py" >"$out/$name" ;;
    small.c) python3 "$sources/big_c.py" 40 >"$out/$name" ;;
    boot.img) python3 "$sources/boot_sector.py" >"$out/$name" ;;
    goroutines | server)
        source=$sources/$name.go
        [[ -e $source ]] || source=$sources/servers/$name.go
        # -trimpath: paths of this machine do not belong in the program.
        GOCACHE=$(realpath "$out")/go-cache GO111MODULE=off go build -trimpath -o "$out/$name" "$source"
        ;;
    *)
        echo "compile: no program '$name'" >&2
        exit 2
        ;;
    esac
done
# The cache is read-only in parts.
[[ ! -e $out/go-cache ]] || { chmod -R u+w "$out/go-cache" && rm -r "$out/go-cache"; }
