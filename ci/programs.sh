#!/usr/bin/env bash
# Records real programs with `vmarea run`, replays them, and requires that nothing differs from the
# kernel, and as root also that at most one result in ten thousand is undecided. Prints one row per
# program and user. Without root, it prints only the rows of the ordinary user.
# usage: ci/programs.sh [--user root|nobody] [--by observing|tracing] [PROGRAM...]     ci/programs.sh --list
#        ci/programs.sh --large     the programs that take minutes, or large packages: a browser, a database,
#                                   virtual machines and sanitizers; .ci/run omits them
#        VMAREA=path/of/vmarea takes that binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD

all=(python cow-children edges threads-c threads-python gcc make redis node pipeline static
    stress-mmap stress-brk stress-mremap stress-mprotect stress-mlock stress-fork)
large=(chromium postgres zgc goroutines asan qemu)

# Sets `command` for one program. All of them run in a directory that they may write to, with
# $programs (the sources) and $built (the compiled programs) readable.
command_of() {
    case $1 in
    python) command=(python3 -c 'import json, ssl, threading') ;;
    cow-children) command=(python3 "$programs/cow_children.py") ;;
    edges) command=("$built/edges") ;;
    threads-c) command=("$built/threads") ;;
    threads-python) command=(python3 "$programs/threads.py") ;;
    gcc) command=(gcc -O2 -c -o big.o "$built/big.c") ;;
    make) command=(make -j2 -C "$programs/project" "OUT=$PWD/project") ;;
    redis) command=("$programs/redis.sh") ;;
    node) command=(node "$programs/workers.js") ;;
    pipeline) command=(sh -c 'seq 200000 | tr 0-4 5-9 | sort -n | uniq -c | wc -l') ;;
    static) command=("$built/static") ;;
    chromium)
        # The browser's sandbox does not work as root, so it is off for both users.
        command=(chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "--user-data-dir=$PWD/profile"
            --virtual-time-budget=5000 --dump-dom "file://$programs/page.html")
        ;;
    postgres) command=("$programs/postgres.sh") ;;
    zgc) command=(java -XX:+UseZGC -Xmx256m "$programs/garbage.java") ;;
    goroutines) command=("$built/goroutines") ;;
    # Its leak check uses ptrace, which a recorded program cannot do.
    asan) command=(env ASAN_OPTIONS=detect_leaks=0 "$built/sanitized") ;;
    qemu)
        command=(sh -c '"$@"; test $? = 33' sh qemu-system-x86_64 -accel tcg -display none -no-reboot -m 64
            -device isa-debug-exit,iobase=0xf4 -drive "file=$built/boot.img,format=raw,snapshot=on")
        ;;
    stress-*) command=(stress-ng "--${1#stress-}" 1 --timeout 5s) ;;
    *)
        echo "programs: no program '$1': one of ${all[*]} ${large[*]}" >&2
        exit 2
        ;;
    esac
}

who_of_all=(nobody)
((EUID != 0)) || who_of_all=(root nobody)
chosen=() by=auto
while (($#)); do
    case $1 in
    --list)
        printf '%s\n' "${all[@]}" "${large[@]}"
        exit
        ;;
    --large) chosen+=("${large[@]}") ;;
    --user)
        who_of_all=("$2")
        shift
        ;;
    --by)
        by=$2
        shift
        ;;
    *) chosen+=("$1") ;;
    esac
    shift
done
((${#chosen[@]})) || chosen=("${all[@]}")
# Copies everything to a folder that an ordinary user can read; a checkout may not be readable.
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
chmod 755 "$room"
programs=$room/programs built=$room/built
for name in "${chosen[@]}"; do command_of "$name"; done

# Packages of the programs that only some checks need.
packages=()
for name in "${chosen[@]}"; do
    case $name in
    chromium) packages+=(chromium) ;;
    postgres) packages+=(postgresql) ;;
    zgc) packages+=(default-jdk-headless) ;;
    goroutines) packages+=(golang-go) ;;
    qemu) packages+=(qemu-system-x86) ;;
    esac
done
PACKAGES="${packages[*]}" ci/install.sh
if [[ -z ${VMAREA-} ]]; then
    cargo build --release --locked --quiet -p vmarea-cli
    VMAREA=${CARGO_TARGET_DIR:-target}/release/vmarea
fi

cp -r tests/programs "$programs"
cp "$VMAREA" "$room/vmarea"
mkdir "$built"
compiled=(edges threads static big.c)
for name in "${chosen[@]}"; do
    case $name in
    goroutines) compiled+=(goroutines) ;;
    asan) compiled+=(sanitized) ;;
    qemu) compiled+=(boot.img) ;;
    esac
done
ci/compile.sh "$programs" "$built" "${compiled[@]}"
chmod -R a+rX "$programs" "$built" "$room/vmarea"

# Prefer Debian's own programs to others in the caller's PATH.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH

status=0
python3 "$top/ci/programs.py" head
for who in "${who_of_all[@]}"; do
    as=()
    if [[ $who == nobody && $EUID == 0 ]]; then
        as=(setpriv --reuid=65534 --regid=65534 --clear-groups --)
    fi
    for name in "${chosen[@]}"; do
        place=$room/$name-$who
        mkdir "$place"
        [[ ${#as[@]} == 0 ]] || chown 65534:65534 "$place"
        cd "$place"
        command_of "$name"
        begun=$EPOCHREALTIME
        code=0
        TMPDIR=$place HOME=$place timeout --kill-after=10 300 \
            "${as[@]}" "$room/vmarea" run --by "$by" --json=report.json --trace run.vmtrace -- "${command[@]}" \
            >out 2>err </dev/null || code=$?
        python3 "$top/ci/programs.py" row "$name" "$who" "$begun" "$EPOCHREALTIME" "$code" report.json || {
            status=1
            tail -n 25 err | sed 's/^/    /' >&2
            kept=$(mktemp --suffix ".$name-$who.vmtrace")
            cp run.vmtrace "$kept" && echo "    the recording is kept as $kept" >&2
        }
        cd "$top"
        rm -rf "$place"
    done
done
exit $status
