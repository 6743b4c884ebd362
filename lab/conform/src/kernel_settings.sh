# Makes the changes to the machine that a run uses, and reverts them at its end: a swap file, active ksmd,
# and huge pages of 2 MiB. Prints one line for each change that was possible, then "ready", and waits for the
# end of its input, which is closed when the run ends for any reason.
# usage: sh kernel_settings.sh DIRECTORY, which is removed
trap '' HUP INT QUIT TERM
exec 2>&1
directory=$1
swap=$directory/swap
ksm=/sys/kernel/mm/ksm
huge=/proc/sys/vm/nr_hugepages
had_ksm= had_huge= made_swap=

# Only one run at a time changes the settings; others use them as they are.
exec 9>/dev/shm/vmarea-conform.lock 2>/dev/null || exec 9>"$directory/lock"
if command -v flock >/dev/null && ! flock -n 9; then
	alone=
else
	alone=yes
fi

if [ "$(wc -l </proc/swaps)" -gt 1 ]; then
	echo "swap there"
elif [ -z "$alone" ]; then
	echo "swap no: another run changes the machine now"
elif said=$(dd if=/dev/zero of="$swap" bs=1048576 count=64 2>&1) &&
	said=$(chmod 600 "$swap" && mkswap "$swap" 2>&1) &&
	said=$(swapon "$swap" 2>&1); then
	made_swap=yes
	echo "swap there"
else
	echo "swap no: $(echo "$said" | tail -n 1)"
fi

if [ -n "$alone" ] && [ -w $ksm/run ]; then
	had_ksm=$(cat $ksm/run $ksm/sleep_millisecs $ksm/pages_to_scan | tr '\n' ' ')
	had_smart=$(cat $ksm/smart_scan 2>/dev/null)
	if echo 1 >$ksm/run; then
		echo 1 >$ksm/sleep_millisecs
		echo 1000 >$ksm/pages_to_scan
		[ -z "$had_smart" ] || echo 0 >$ksm/smart_scan
		echo "ksm there"
	else
		had_ksm=
		echo "ksm no: it cannot be switched on"
	fi
elif [ "$(cat $ksm/run 2>/dev/null)" = 1 ]; then
	echo "ksm there"
else
	echo "ksm no: /sys/kernel/mm/ksm cannot be written"
fi

if [ -n "$alone" ] && [ -w $huge ]; then
	had_huge=$(cat $huge)
	echo $((had_huge + 64)) >$huge
fi
free=$(sed -n 's/^HugePages_Free: *//p' /proc/meminfo)
if [ -z "$alone" ]; then
	# The other run would release its huge pages when it ends.
	echo "hugetlb no: another run changes the machine now"
elif [ "${free:-0}" -ge 64 ]; then
	echo "hugetlb there"
else
	echo "hugetlb no: ${free:-0} free pages of 2 MiB"
fi

echo ready
cat >/dev/null

[ -z "$made_swap" ] || swapoff "$swap"
if [ -n "$had_ksm" ]; then
	set -- $had_ksm
	# Unmerge all pages, because no other program has requested merging.
	[ "$1" = 1 ] || echo 2 >$ksm/run
	echo "$1" >$ksm/run
	echo "$2" >$ksm/sleep_millisecs
	echo "$3" >$ksm/pages_to_scan
	[ -z "$had_smart" ] || echo "$had_smart" >$ksm/smart_scan
fi
[ -z "$had_huge" ] || echo "$had_huge" >$huge
rm -rf "$directory"
