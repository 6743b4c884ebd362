"""Programs of runtimes: Java, Node.js, PHP, Ruby, Python, Redis, LuaJIT, and others."""

import os

from .running import Start, program

PYTHON = "/usr/bin/python3"
NODE = "console.log('ready');setInterval(()=>{},1e6)"
JDK = "javac:default-jdk-headless"


def java(room, source, options, *words, classpath=()):
    return Start(["java", "-XX:-UsePerfData", *options, *room.java(source, *classpath), *words])


@program("run-java-threads", JDK)
def _(room):
    return java(room, "Threads.java", ["-Xmx64m"], 1100)


@program("run-java-threads-256k", JDK)
def _(room):
    return java(room, "Threads.java", ["-Xmx64m", "-Xss256k"], 1600)


@program("run-java-files", JDK)
def _(room):
    return java(room, "Files.java", ["-Xmx64m"], 3000)


@program("run-java-files-deleted", JDK)
def _(room):
    return java(room, "Files.java", ["-Xmx64m"], 2600, "delete")


@program("run-java-zgc", JDK)
def _(room):
    return java(room, "Heap.java", ["-XX:+UseZGC", "-Xmx1g"])


@program("run-java-library-copies", JDK, "gcc")
def _(room):
    room.run("gcc", "-shared", "-o", "native.so", "-x", "c", "/dev/null")
    return java(room, "Copies.java", ["-Xmx64m"], 600, "native.so")


@program("run-java-lucene", JDK, "liblucene8-java")
def _(room):
    jars = [f"/usr/share/java/lucene{part}-8.7.0.jar" for part in ("-core", "-analyzers-common")]
    return java(room, "Index.java", ["-Xmx300m"], 130, classpath=jars)


@program("run-php-fibers", "php-cli")
def _(room):
    text = "<?php for($i=0;$i<1200;$i++){$f=new Fiber(function(){Fiber::suspend();});$f->start();$a[]=$f;} echo \"ready\\n\"; sleep(600);"
    return Start(["php", room.write("fibers.php", text)])


@program("run-ruby-fibers", "ruby")
def _(room):
    text = "a = (1..2500).map { f = Fiber.new { Fiber.yield }; f.resume; f }\nputs 'ready'; $stdout.flush; sleep"
    return Start(["ruby", room.write("fibers.rb", text)])


@program("run-ruby-threads", "ruby")
def _(room):
    text = "a = (1..900).map { Thread.new { sleep } }\nThread.pass until a.all?(&:stop?)\nputs 'ready'; $stdout.flush; sleep"
    return Start(["ruby", room.write("threads.rb", text)])


@program("run-ruby-heap", "ruby")
def _(room):
    text = "a = []\n3_000_000.times { |i| a << 'x' + i.to_s }\na.each_index { |i| a[i] = nil if i % 997 > 3 }\nGC.start\nputs 'ready'; $stdout.flush; sleep"
    return Start(["ruby", room.write("heap.rb", text)])


@program("run-node-heap", "node:nodejs")
def _(room):
    return Start(["node", "-e", "a=[];for(i=0;i<3e6;i++)a.push({i,s:'x'+i,b:[i]});" + NODE])


@program("run-node-wasm", "node:nodejs")
def _(room):
    return Start(["node", "-e", "m=[];for(i=0;i<1200;i++)m.push(new WebAssembly.Memory({initial:1,maximum:10}));" + NODE])


@program("run-wasmtime", pip=("wasmtime==50.0.1",))
def _(room):
    text = """import wasmtime
engine = wasmtime.Engine()
module = wasmtime.Module(engine, '(module (memory 1) (func (export "run")))')
store = wasmtime.Store(engine)
kept = [wasmtime.Instance(store, module, []) for _ in range(900)]
print('ready', flush=True)
input()
"""
    return Start([room.python, room.write("instances.py", text)])


@program("run-python-windows", "python3")
def _(room):
    text = """import mmap, random
with open('points.db', 'w+b') as file:
    file.truncate(1 << 33)
    chance = random.Random(1)
    kept = [mmap.mmap(file.fileno(), 65536, offset=65536 * chance.randrange(1 << 17), access=mmap.ACCESS_READ) for _ in range(2800)]
print('ready', flush=True)
input()
"""
    return Start([PYTHON, room.write("windows.py", text)])


@program("run-python-closures", "python3")
def _(room):
    text = """import ctypes
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
kept = [kind(lambda value: value) for _ in range(100000)]
print('ready', flush=True)
input()
"""
    return Start([PYTHON, room.write("closures.py", text)])


@program("run-python-shared-memory", "python3")
def _(room):
    text = """from multiprocessing import shared_memory
kept = [shared_memory.SharedMemory(create=True, size=5000) for _ in range(900)]
print('ready', flush=True)
try:
    input()
finally:
    for one in kept: one.unlink()
"""
    return Start([PYTHON, room.write("shared.py", text)])


@program("run-numpy-files", "python3-numpy")
def _(room):
    text = """import numpy
kept = []
for k in range(2200):
    numpy.save(f'column{k}.npy', numpy.arange(1000 + k))
    kept.append(numpy.load(f'column{k}.npy', mmap_mode='r'))
print('ready', flush=True)
input()
"""
    return Start([PYTHON, room.write("columns.py", text)])


@program("run-lmdb-reservations", "python3-lmdb")
def _(room):
    text = """import lmdb
kept = []
try:
    for k in range(300):
        kept.append(lmdb.open(f'tenant{k}', map_size=1 << 40, sync=False))
except lmdb.Error as error:
    print(len(kept), error)
print('ready', flush=True)
input()
"""
    return Start([PYTHON, room.write("tenants.py", text)])


@program("run-greenlets", pip=("greenlet==3.5.6",))
def _(room):
    text = """import greenlet
main = greenlet.getcurrent()
kept = [greenlet.greenlet(main.switch) for _ in range(5000)]
for one in kept: one.switch()
print('ready', flush=True)
input()
"""
    return Start([room.python, room.write("greenlets.py", text)])


@program("run-python-threads", "python3")
def _(room):
    text = """import threading
gate = threading.Event()
for _ in range(1500): threading.Thread(target=gate.wait, daemon=True).start()
print('ready', flush=True)
input()
"""
    return Start([PYTHON, room.write("many.py", text)])


@program("run-redis-no-overcommit", "redis-server", "redis-tools", "libjemalloc2")
def _(room):
    room.write("forbidden", "2")
    text = """mount --bind forbidden /proc/sys/vm/overcommit_memory
MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0 redis-server --port 0 --unixsocket here --save '' >log &
until redis-cli -s here ping 2>/dev/null | grep -q PONG; do :; done
redis-cli -s here eval "for i = 1, 16000 do redis.call('set', 'k' .. i, string.rep('x', 3000 + (i * 7919) % 30000)) end for i = 1, 16000 do if i % 5 > 0 then redis.call('del', 'k' .. i) end end" 0 >/dev/null
echo ready; wait
"""
    return Start(["unshare", "-m", "sh", room.write("fill.sh", text)], inside="redis-server")


@program("run-sbcl-threads", "sbcl")
def _(room):
    text = '(dotimes (i 400) (sb-thread:make-thread (lambda () (sleep 600))))\n(format t "ready~%") (finish-output) (sleep 600)'
    return Start(["sbcl", "--noinform", "--non-interactive", "--load", room.write("threads.lisp", text)])


@program("run-mono-threads", "mono-mcs", "mono-runtime")
def _(room):
    source = room.write("many.cs", """using System; using System.Threading;
class Many { static void Main() { for (int i = 0; i < 900; i++) { var t = new Thread(() => Thread.Sleep(600000)); t.IsBackground = true; t.Start(); }
Console.WriteLine("ready"); Thread.Sleep(600000); } }""")
    room.run("mcs", "-out:many.exe", source)
    return Start(["mono", "many.exe"])


@program("run-erlang-processes", "erlang-base")
def _(room):
    text = "P = [spawn(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, 100000)], io:format(\"ready~n\"), receive never -> P end."
    return Start(["erl", "-noshell", "+P", "300000", "-eval", text], inside="beam.smp")


@program("run-lua-coroutines", "lua5.4")
def _(room):
    text = "local a = {}\nfor i = 1, 100000 do a[i] = coroutine.create(function() coroutine.yield() end) coroutine.resume(a[i]) end\nprint('ready') io.stdout:flush() io.read()"
    return Start(["lua5.4", room.write("many.lua", text)])


def go(room, text, **env):
    room.write("main.go", text)
    room.run("go", "build", "-o", "many", "main.go", env=os.environ | {"GOFLAGS": "-mod=mod", "GO111MODULE": "off"} | env)
    return Start(["./many"])


@program("run-go-goroutines", "go:golang-go")
def _(room):
    return go(room, """package main

import "fmt"

func main() {
	gate := make(chan int)
	for i := 0; i < 200000; i++ {
		go func() { <-gate }()
	}
	fmt.Println("ready")
	select {}
}
""")


@program("run-go-locked-threads", "go:golang-go")
def _(room):
    return go(room, """package main

import (
	"fmt"
	"runtime"
	"sync"
)

func main() {
	var all sync.WaitGroup
	for i := 0; i < 1500; i++ {
		all.Add(1)
		go func() {
			runtime.LockOSThread()
			all.Done()
			select {}
		}()
	}
	all.Wait()
	fmt.Println("ready")
	var line string
	fmt.Scanln(&line)
}
""", CGO_ENABLED="0")


@program("run-go-threads-in-c", "go:golang-go", "gcc")
def _(room):
    return go(room, """package main

// #include <unistd.h>
// #include <stdatomic.h>
// static atomic_int begun;
// static void rest(void) { begun++; pause(); }
// static int count(void) { return begun; }
import "C"
import "fmt"
import "time"

func main() {
	for i := 0; i < 1300; i++ {
		go C.rest()
	}
	for C.count() < 1300 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("ready")
	select {}
}
""", CGO_ENABLED="1")
