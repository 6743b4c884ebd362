# Debian's kernels and busybox, from the mirror of this machine's apt (ci/lib/served.py) and never installed; to be
# sourced. Downloads stay in $cache.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/vmarea/kernels
mkdir -p "$cache"

# Prints the kernels that are served.
list_kernels() { python3 ci/lib/served.py list; }

# Puts a kernel (a version like 6.12, or one of its releases) and the one module that is needed into the cache.
fetch_kernel() {
    [[ -e $cache/$1/vmlinuz ]] || python3 ci/lib/served.py fetch "$1" "$cache/$1"
}

fetch_busybox() {
    [[ -e $cache/busybox ]] || python3 ci/lib/served.py busybox "$cache/busybox"
}
