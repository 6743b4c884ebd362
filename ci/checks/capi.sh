#!/usr/bin/env bash
# The C interface: the header is current, and compiles as C and as C++; the example prints what it must,
# wrong arguments and failing callbacks are refused, faults go on when their pages come, and threads see their own
# bytes, under AddressSanitizer and under valgrind. Then the threads under ThreadSanitizer, with the library built for
# it, if there is a nightly toolchain; and the example on a libvmarea.a without std, whose allocator is the program's.
# usage: ci/run capi
. "$(dirname "$0")/../lib/prepare.sh"

packages gcc g++ libc6-dev valgrind pkgconf binutils
capi=$PWD/crates/capi
temporary

"$(example header)" >"$work/vmarea.h"
diff -u "$capi/include/vmarea.h" "$work/vmarea.h" ||
    fail "the header is not current: cargo run -p vmarea-capi --example header >crates/capi/include/vmarea.h"
strict=(-Wall -Wextra -Wpedantic -Werror)
for standard in c99 c23; do
    [[ $standard != c23 ]] || gcc -std=c23 -fsyntax-only -x c /dev/null 2>/dev/null || continue
    gcc "-std=$standard" "${strict[@]}" -fsyntax-only -x c "$capi/include/vmarea.h"
done
for standard in c++11 c++20; do
    g++ "-std=$standard" "${strict[@]}" -DVMAREA_NO_STD -fsyntax-only -x c++ "$capi/include/vmarea.h"
done

"$capi/install.sh" --debug "$work/prefix"
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
[[ $(pkg-config --modversion vmarea) == $(cargo pkgid --locked -p vmarea-capi | sed 's/.*[#@]//') ]] ||
    fail "pkg-config says another version than cargo"
read -ra shared <<<"$(pkg-config --cflags --libs vmarea)"
read -ra private <<<"$(sed -n 's/^Libs.private: //p' "$PKG_CONFIG_PATH/vmarea.pc")"

# check NAME COMMAND...: runs a program, which must print what is expected and exit with 0
check() {
    local name=$1 expected=/dev/null
    shift
    [[ ! -e $capi/examples/$name.expected ]] || expected=$capi/examples/$name.expected
    "$@" >"$work/out" 2>"$work/err" || {
        cat "$work/out" "$work/err" >&2
        fail "$* failed"
    }
    diff -u "$expected" "$work/out" || fail "$name prints something else"
}

for source in "$capi"/examples/{toy_emulator,sandbox}.c "$capi"/tests/{interface,async_pages,threads}.c; do
    name=$(basename "$source" .c)
    gcc -std=gnu11 -g "${strict[@]}" -fsanitize=address,undefined -fno-sanitize-recover=all \
        -I"$work/prefix/include" -o "$work/$name-asan" "$source" \
        "$work/prefix/lib/libvmarea.a" "${private[@]}"
    check "$name" "$work/$name-asan"
    gcc -std=gnu11 -g "${strict[@]}" -o "$work/$name" "$source" "${shared[@]}"
    export LD_LIBRARY_PATH=$work/prefix/lib
    check "$name" valgrind --quiet --error-exitcode=9 --leak-check=full --child-silent-after-fork=yes \
        "$work/$name"
    unset LD_LIBRARY_PATH
done

# The library must be built for ThreadSanitizer, too, which does not see its locks otherwise. The runtime is the
# toolchain's, because the instrumentation of rustc needs functions that gcc's does not have.
toolchain=${TSAN_TOOLCHAIN:-nightly}
target=$(rustc -vV | sed -n 's/^host: //p')
sysroot=$(rustc "+$toolchain" --print sysroot 2>/dev/null) || sysroot=
runtime=$(compgen -G "$sysroot/lib/rustlib/$target/lib/librustc-*_rt.tsan.a") || runtime=
if [[ -n $runtime ]]; then
    tsan=${CARGO_TARGET_DIR:-target}/capi-tsan
    CARGO_TARGET_DIR=$tsan RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
        cargo "+$toolchain" rustc --quiet --locked -p vmarea-capi --lib --crate-type staticlib --target "$target"
    for name in async_pages threads; do
        gcc -std=gnu11 -g "${strict[@]}" -fsanitize=thread -I"$work/prefix/include" -c -o "$work/$name.o" \
            "$capi/tests/$name.c"
        gcc -o "$work/$name-tsan" "$work/$name.o" -Wl,--whole-archive "$runtime" -Wl,--no-whole-archive \
            "$tsan/$target/debug/libvmarea.a" "${private[@]}"
        TSAN_OPTIONS=halt_on_error=1 check "$name" "$work/$name-tsan"
    done
    sanitizers="AddressSanitizer, ThreadSanitizer"
else
    sanitizers="AddressSanitizer"
    echo "capi: not under ThreadSanitizer, which needs a $toolchain toolchain" >&2
fi

has_target x86_64-unknown-none || {
    echo "capi: ok, but without std it was not built: no target x86_64-unknown-none"
    exit
}
cargo rustc --quiet --locked -p vmarea-capi --lib --no-default-features --crate-type staticlib \
    --target x86_64-unknown-none
bare=${CARGO_TARGET_DIR:-target}/x86_64-unknown-none/debug/libvmarea.a
gcc -std=gnu11 -g "${strict[@]}" -I"$work/prefix/include" -o "$work/bare" \
    "$capi/examples/toy_emulator.c" "$capi/tests/no_std.c" "$bare"
check toy_emulator "$work/bare"
echo "capi: ok: header, C, C++, $sanitizers, valgrind, without std"
