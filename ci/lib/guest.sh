# A machine under QEMU's software emulation with one of Debian's kernels, statically linked programs and busybox; to be
# sourced. Needs the folder $work, and $task, the script that the machine runs (ci/lib/guest-init).

. ci/lib/linux.sh

# Installs the packages for building and booting, from the machine's own suites.
guest_tools() {
    local pair packages=()
    for pair in gcc:gcc qemu-system-x86_64:qemu-system-x86 cpio:cpio xz:xz-utils python3:python3; do
        command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
    done
    # No command shows whether the static C library is installed.
    [[ -e /usr/lib/x86_64-linux-gnu/libc.a ]] || packages+=(libc6-dev)
    ((${#packages[@]})) || return 0
    ((EUID == 0)) || fail "missing: run as root: apt-get install ${packages[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
}

# static_program vmarea|vmarea-lab: prints the path of the program, linked statically, that VMAREA or LAB names, or builds it
static_program() {
    local built=${VMAREA-} target=x86_64-unknown-linux-gnu package=(-p vmarea-cli)
    [[ $1 == vmarea ]] || { built=${LAB-} package=(--manifest-path lab/Cargo.toml -p vmarea-lab); }
    if [[ -z $built ]]; then
        RUSTFLAGS='-C target-feature=+crt-static' \
            cargo build --release --locked --quiet "${package[@]}" --target "$target" >&2
        built=${CARGO_TARGET_DIR:-target}/$target/release/$1
    fi
    realpath "$built"
}

# guest_root VERSION NAME FILE: sets root to a new folder with the files of the machine, and a program as /NAME
guest_root() {
    root=$work/root-$1
    mkdir -p "$root"/{bin,proc,sys,dev,tmp}
    cp ci/lib/guest-init "$root/init"
    cp "$task" "$root/task"
    cp "$cache/busybox" "$root/bin/busybox"
    cp "$cache/$1/brd.ko" "$root/brd.ko"
    cp "$3" "$root/$2"
    chmod +x "$root/init" "$root/bin/busybox" "$root/$2"
}

# guest_pack VERSION: builds the archive that the kernel unpacks into memory and whose /init it runs
guest_pack() {
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$work/initramfs-$1"
    rm -r "$root"
}

# guest_run VERSION SECONDS PROCESSORS CONSOLE RESULT ARGUMENT...: boots a kernel and waits until it has switched the
# machine off; what the task writes goes to RESULT, a serial port of QEMU. The kernel must not check the timer at its
# start: on a busy machine it would find none, and panic. Without ERMS and FSRM it copies and clears pages by words: QEMU
# executes `rep movsb` byte by byte, which takes half of the time of conform.
guest_run() {
    local version=$1 seconds=$2 processors=$3 console=$4 result=$5
    timeout "$seconds" qemu-system-x86_64 \
        -accel tcg,thread=multi -cpu max,la57=off,pku=off,cx16=off,erms=off,fsrm=off -smp "$processors" -m 4G \
        -nodefaults -display none -no-reboot \
        -kernel "$cache/$version/vmlinuz" -initrd "$work/initramfs-$version" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check -- ${*:6}" \
        -serial "file:$console" -serial "$result" </dev/null ||
        echo "$check_name: Linux $version did not end by itself: see $console" >&2
}
