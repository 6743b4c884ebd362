"""Compilers, debuggers, compressors and the like, at work."""

from programs.running import Start

from .table import healthy

# Many classes from a few lines: a compiler needs longer for them than the check takes.
TEMPLATES = """#include <algorithm>
#include <map>
#include <string>
#include <vector>
template <int A, int B> struct F { enum { value = (F<A - 1, B>::value + F<A - 2, B + 1>::value) % 1000 }; };
template <int B> struct F<0, B> { enum { value = B }; };
template <int B> struct F<1, B> { enum { value = B + 1 }; };
int main() { return F<800, 1>::value; }
"""
TALKS = 'echo ready; exec "$@"'


def compiling(command, comm):
    """Starts a compiler, and waits for the process that compiles to have grown to 100 MB."""
    return Start(["sh", "-c", TALKS, "sh", *command], inside=comm, grown=100 << 20)


@healthy("gcc-at-work", "g++")
def _(room):
    return compiling(["g++", "-O2", "-ftemplate-depth=2000", "-c", room.write("a.cpp", TEMPLATES), "-o", "a.o"], "cc1plus")


@healthy("clang-at-work", "clang", "g++")
def _(room):
    return compiling(["clang++", "-O2", "-ftemplate-depth=4000", "-c", room.write("a.cpp", TEMPLATES), "-o", "a.o"], "clang++")


@healthy("rustc-at-work")
def _(room):
    text = "".join(f"pub fn f{k}(a: &mut std::collections::BTreeMap<String, Vec<u{8 << k % 4}>>) {{ a.entry(format!(\"{{}}\", {k})).or_default().sort(); }}\n"
                   for k in range(6000))
    return compiling(["rustc", "-O", "--crate-type=lib", room.write("a.rs", text)], "rustc")


@healthy("go-compiler-at-work", "go:golang-go")
def _(room):
    text = "package a\n" + "".join(f"func F{k}(a map[string]int) int {{ for k, v := range a {{ if v > {k} {{ a[k+\"{k}\"] += v * {k} }} }}; return len(a) }}\n"
                                   for k in range(40000))
    room.write("go.mod", "module a\n")
    room.write("a.go", text)
    return compiling(["go", "build", "."], "compile")


@healthy("javac-at-work", "javac:default-jdk-headless")
def _(room):
    names = []
    for part in range(40):
        text = f"class A{part} {{\n" + "".join(
            f"static int f{k}(java.util.Map<String, Integer> a) {{ return a.values().stream().mapToInt(v -> v * {k}).sum(); }}\n" for k in range(600))
        names.append(room.write(f"A{part}.java", text + "}\n"))
    return compiling(["javac", "-d", room.path, *names], "javac")


@healthy("debugger", "gdb", "gcc")
def _(room):
    program = room.compiled("threads.c", "-g")
    return Start(["gdb", "-q", "-nx", program], "ready", feed="break main\nrun 3 0\necho ready\\n\n")


@healthy("debugged-threads", "gdb", "gcc")
def _(room):
    program = room.compiled("threads.c", "-g")
    return Start(["gdb", "-q", "-nx", "-ex", "handle SIGSTOP nostop", "-ex", "run", "--args", program, "50", "0"], inside="threads")


@healthy("xz-at-work", "xz-utils")
def _(_room):
    return compiling(["sh", "-c", "yes abcdefg | xz -9 -T4 >/dev/null"], "xz")


@healthy("video-encoder", "ffmpeg")
def _(_room):
    return compiling(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=size=1920x1080", "-c:v", "libx264", "-f", "null", "-"], "ffmpeg")


@healthy("virtual-machine", "qemu-system-x86")
def _(_room):
    return Start(["qemu-system-x86_64", "-m", "1024", "-smp", "4", "-display", "none", "-nic", "none", "-monitor", "stdio", "-accel", "tcg"],
                 "QEMU .* monitor")


@healthy("plotter", "gnuplot-nox")
def _(_room):
    return Start(["gnuplot"], "ready", feed="set terminal dumb\nplot sin(x)\nprint 'ready'\n")


@healthy("shell", "zsh")
def _(_room):
    return Start(["zsh", "-f"], "ready", feed="for i in {1..20000}; do a[$i]=$i; done; echo ready\n")


@healthy("awk-at-work", "gawk")
def _(_room):
    return Start(["gawk", 'BEGIN { for (n = 0; ; n++) { a[n % 90000] = n "x"; if (n == 900000) { print "ready"; fflush() } } }'])
