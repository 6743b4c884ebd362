#!/bin/sh
# Builds program.c and records it with strace and perf, which creates the text files next to this script.
# Needs root (tracepoints), gcc, strace and perf. The tests must pass with any recording of program.c.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=/tmp/vmarea-capture
mkdir -p "$dir"
cd "$dir"
export LC_ALL=C
gcc -O1 -pthread -o program "$here/program.c" 2>/dev/null

strace -f -o "$here/strace-o.txt" ./program >/dev/null
strace -f -ttt -T -y -o "$here/strace-ttt-T-y.txt" ./program >/dev/null
strace -f -tt ./program 2>"$here/strace-stderr.txt" >/dev/null
strace -f -r -e trace=%memory,%process -o "$here/strace-memory.txt" ./program >/dev/null

calls=
for call in mmap munmap mprotect brk mremap madvise mlock mlock2 munlock mlockall munlockall \
	shmat shmdt mbind prctl prlimit64 clone clone3 execve exit_group; do
	calls="$calls,syscalls:sys_enter_$call,syscalls:sys_exit_$call"
done
faults=exceptions:page_fault_user,exceptions:page_fault_kernel
perf record -q -c 1 -d -e "$faults$calls" -o perf.data ./program >/dev/null
perf script -i perf.data -F comm,pid,tid,time,event,trace --show-task-events --show-mmap-events \
	>"$here/perf-script.txt" 2>/dev/null

perf record -q -c 1 -e raw_syscalls:sys_enter,raw_syscalls:sys_exit \
	-e sched:sched_process_fork,sched:sched_process_exec,sched:sched_process_exit \
	-o perf.data ./program >/dev/null
perf script -i perf.data >"$here/perf-script-raw.txt"

perf record -q -c 1 -d -e page-faults -o perf.data ./program >/dev/null
perf script -i perf.data -F +pid,+addr --show-task-events >"$here/perf-script-software.txt"
perf script -i perf.data | head -n 5 >"$here/perf-script-no-addresses.txt"

perf trace -F all --syscalls -o "$here/perf-trace.txt" ./program >/dev/null
rm -r "$dir"
