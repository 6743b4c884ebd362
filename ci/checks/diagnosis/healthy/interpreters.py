"""Interpreters and runtimes, at rest and at work."""

import os

from programs.running import LIB, Start

from .table import healthy

PYTHON = "/usr/bin/python3"


@healthy("python-at-work", "python3")
def _(room):
    text = """import collections, random
chance = random.Random(2)
kept = collections.deque(maxlen=200000)
for k in range(10 ** 12):
    kept.append({chance.random(): 'x' * chance.randrange(400)})
    if k == 600000: print('ready', flush=True)
"""
    return Start([PYTHON, room.write("work.py", text)])


@healthy("python-science", "python3-scipy", "python3-numpy")
def _(room):
    text = """import numpy, scipy.linalg, scipy.sparse, scipy.optimize, scipy.signal, scipy.stats
a = numpy.random.rand(500, 500)
scipy.linalg.svd(a @ a)
print('ready', flush=True)
while True: a @ a
"""
    return Start([PYTHON, room.write("science.py", text)])


@healthy("python-pool", "python3")
def _(room):
    text = """import concurrent.futures, threading
with concurrent.futures.ThreadPoolExecutor(60) as pool:
    gate = threading.Barrier(61)
    for _ in range(60): pool.submit(lambda: (gate.wait(), gate.wait()))
    gate.wait()
    print('ready', flush=True)
    input()
"""
    return Start([PYTHON, room.write("pool.py", text)])


@healthy("node-at-work", "node:nodejs")
def _(room):
    text = "let m=new Map(),n=0;setInterval(()=>{for(let i=0;i<50000;i++){m.set(n%300000,{n,s:'x'+n});n++}if(n==600000)console.log('ready')},1)"
    return Start(["node", "-e", text])


@healthy("node-workers", "node:nodejs")
def _(room):
    text = """const w=require('worker_threads');let n=0;
for(let i=0;i<8;i++)new w.Worker("require('worker_threads').parentPort.postMessage(1);setInterval(()=>{},1e6)",{eval:true}).on('message',()=>{if(++n==8)console.log('ready')})"""
    return Start(["node", "-e", text])


def java(room, *options):
    text = """import java.util.*;
class Work { public static void main(String[] words) {
    Map<Integer, byte[]> kept = new HashMap<>(); Random chance = new Random(1);
    for (long k = 0; ; k++) { kept.put(chance.nextInt(20000), new byte[chance.nextInt(8000)]); if (k == 400000) System.out.println("ready"); } } }"""
    room.run("javac", "-d", room.path, room.write("Work.java", text))
    return Start(["java", *options, "-cp", room.path, "Work"])


@healthy("java-g1-at-work", "javac:default-jdk-headless")
def _(room):
    return java(room, "-Xmx512m", "-XX:+UseG1GC")


@healthy("java-parallel-at-work", "javac:default-jdk-headless")
def _(room):
    return java(room, "-Xmx512m", "-XX:+UseParallelGC")


@healthy("java-shenandoah-at-work", "javac:default-jdk-headless")
def _(room):
    return java(room, "-Xmx512m", "-XX:+UseShenandoahGC")


@healthy("java-zgc-at-work", "javac:default-jdk-headless")
def _(room):
    return java(room, "-Xmx512m", "-XX:+UseZGC")


@healthy("java-shell", "javac:default-jdk-headless")
def _(room):
    return Start(["jshell", "-s", "-"], "ready", feed='System.out.println("ready")\n', env={"HOME": os.fspath(room.path)})


@healthy("ruby-at-work", "ruby")
def _(room):
    text = "a = []\nn = 0\nloop { n += 1; a[n % 50000] = ['x' * (n % 300), n]; (puts 'ready'; $stdout.flush) if n == 400_000 }"
    return Start(["ruby", room.write("work.rb", text)])


@healthy("perl-at-work", "perl")
def _(room):
    text = "$| = 1; for (my $n = 0; ; $n++) { $a{$n % 90000} = 'x' x ($n % 500); print \"ready\\n\" if $n == 400000 }"
    return Start(["perl", "-e", text])


@healthy("lua-at-work", "lua5.4")
def _(room):
    text = "local a, n = {}, 0 while true do n = n + 1 a[n % 90000] = {n, 'x' .. n} if n == 900000 then print('ready') io.stdout:flush() end end"
    return Start(["lua5.4", "-e", text])


@healthy("luajit-at-work", "luajit")
def _(room):
    text = "local a, n = {}, 0 while true do n = n + 1 a[n % 90000] = {n, 'x' .. n} if n == 900000 then print('ready') io.stdout:flush() end end"
    return Start(["luajit", "-e", text])


@healthy("lisp-at-work", "sbcl")
def _(room):
    text = '(defvar *all* (make-array 90000))\n(loop for n from 0 do (setf (aref *all* (mod n 90000)) (list n (make-string (mod n 90)))) (when (= n 900000) (format t "ready~%") (finish-output)))'
    return Start(["sbcl", "--noinform", "--non-interactive", "--load", room.write("work.lisp", text)])


@healthy("scheme-at-work", "guile-3.0")
def _(room):
    text = '(define all (make-vector 90000 0))\n(let next ((n 0)) (vector-set! all (modulo n 90000) (list n (make-string (modulo n 90)))) (when (= n 900000) (display "ready\\n") (force-output)) (next (+ n 1)))'
    return Start(["guile", "--no-auto-compile", room.write("work.scm", text)], env={"HOME": os.fspath(room.path)})


@healthy("mono-at-work", "mono-mcs", "mono-runtime")
def _(room):
    source = room.write("work.cs", """using System; using System.Collections.Generic;
class Work { static void Main() { var all = new Dictionary<int, byte[]>(); for (int n = 0; ; n++) { all[n % 20000] = new byte[n % 4000];
if (n == 500000) Console.WriteLine("ready"); } } }""")
    room.run("mcs", "-out:work.exe", source)
    return Start(["mono", "work.exe"])


@healthy("ocaml-toplevel", "ocaml")
def _(room):
    return Start(["ocaml", "-noinit"], "ready", feed='print_endline "ready";;\n')


@healthy("prolog-toplevel", "swi-prolog-nox")
def _(room):
    return Start(["swipl", "-q"], "ready", feed="writeln(ready).\n")


@healthy("statistics", "r-base-core")
def _(room):
    return Start(["Rscript", "-e", "a <- matrix(runif(1e6), 1000); s <- svd(a); cat('ready\\n'); repeat a %*% a"], inside="R")


@healthy("erlang-at-work", "erlang-base")
def _(room):
    text = "F = fun(F, N, M) -> case N of 900000 -> io:format(\"ready~n\"); _ -> ok end, F(F, N + 1, M#{N rem 50000 => [N, N]}) end, F(F, 0, #{})."
    return Start(["erl", "-noshell", "-eval", text], inside="beam.smp", env={"HOME": os.fspath(room.path)})


@healthy("sqlite-mapped", "sqlite3")
def _(room):
    text = ".output stdout\npragma mmap_size=1000000000; create table t as with recursive c(x) as (select 1 union all select x + 1 from c where x < 300000) select x, hex(x) from c; select count(*) from t; select 'ready';\n"
    return Start(["sqlite3", "data.db"], "ready", feed=text)


def sanitized(room, kind):
    return Start([room.compiled("blocks.c", f"-fsanitize={kind}", "-g"), 3000, 2], env={"ASAN_OPTIONS": "detect_leaks=0"})


@healthy("address-sanitizer", "gcc")
def _(room):
    return sanitized(room, "address")


@healthy("thread-sanitizer", "gcc")
def _(room):
    return sanitized(room, "thread")


@healthy("valgrind", "valgrind", "gcc")
def _(room):
    return Start(["valgrind", room.compiled("blocks.c", "-g"), 800, 2])


@healthy("jemalloc-preloaded", "libjemalloc2", "python3")
def _(room):
    return Start([PYTHON, "-c", "a = ['x' * (k % 3000) for k in range(200000)]\ndel a[::2]\nprint('ready', flush=True)\ninput()"],
                 env={"LD_PRELOAD": LIB + "libjemalloc.so.2", "PYTHONMALLOC": "malloc"})


@healthy("mimalloc-preloaded", "libmimalloc2.0", "python3")
def _(room):
    return Start([PYTHON, "-c", "a = ['x' * (k % 3000) for k in range(200000)]\ndel a[::2]\nprint('ready', flush=True)\ninput()"],
                 env={"LD_PRELOAD": LIB + "libmimalloc.so.2.0", "PYTHONMALLOC": "malloc"})
