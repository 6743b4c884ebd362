# A script for the shell of busybox: pipes, loops, files, many short processes.
seq 1000 | sha256sum
x=$(expr 6 \* 7); echo "answer $x"
seq 1 2000 | sort -rn | head -3
sha256sum /bin/busybox | cut -c 1-64
i=0; while [ $i -lt 50 ]; do true; /bin/busybox true; i=$((i+1)); done; echo "$i programs"
for i in 1 2 3; do echo "line $i"; done > lines; wc -l < lines
echo more >> lines; cat lines; mv lines other; ls; rm other
(exit 3) || echo "status $?"
sh -c 'kill -9 $$'; echo "killed $?"
sh -c 'kill -TERM $$'; echo "ended $?"
dd if=/dev/zero bs=1M count=8 2>/dev/null | md5sum
yes | head -100000 | wc -l
awk 'BEGIN { for (i = 0; i < 100000; i++) s += i; print s }'
find /bin -name 'b*' | sort | head -2
cut -d ' ' -f 1-3 /proc/self/maps
grep -E 'Size|VmFlags' /proc/self/smaps | tr -s ' ' | sed 's/ sd / /' | head -40
cat /nothing; echo "status $?"
