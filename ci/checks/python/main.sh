#!/usr/bin/env bash
# Checks the Python module: installs it from the sources, and runs its tests: results and errors against the command
# line's, tables in Polars, DuckDB, pandas and pyarrow, the notebook, and the code and queries in the documentation.
# usage: ci/run python [--share]     without what follows; the module is built without optimization
#        ci/run python               also the tests of the tables in Rust, clippy, type stubs, `export --parquet` of the
#                                   program, the cost of a replay, and the wheel in an environment without Rust
#        ci/run python --wheel OUT   builds the wheel for machines without Rust, and nothing else
. "$(dirname "$0")/../../lib/prepare.sh"
root=$PWD

packages gcc valgrind
venv=$(ci/lib/venv.sh)
python=$venv/bin/python
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# A workspace of its own has a folder of its own: the two would rebuild what they share with other settings.
own=$target/python

wheel() { # OUT: glibc 2.17 is that of all distributions since 2014
    (cd python && PATH=$venv/bin:$PATH CARGO_TARGET_DIR=$own "$venv/bin/maturin" build --quiet --release --locked --zig \
        --compatibility manylinux2014 --out "$1")
}

if [[ ${1-} == --wheel ]]; then
    wheel "$(realpath -m "${2:?usage: ci/run python --wheel OUT}")"
    exit
fi

install() { # ARGUMENT...: `pip install` from the sources, with the maturin of the venv
    rm -rf "$own/site"
    PATH=$venv/bin:$PATH CARGO_TARGET_DIR=$own MATURIN_PEP517_ARGS="--locked $*" "$venv/bin/pip" install --quiet \
        --disable-pip-version-check --no-deps --no-build-isolation --target "$own/site" ./python
}

VMAREA=$(program vmarea)
export VMAREA PYTHONPATH=$own/site
if [[ ${1-} == --share ]]; then
    install --profile dev
    exec "$python" -m pytest -q -p no:cacheprovider -m 'not slow' python/tests
fi

install
(cd python && CARGO_TARGET_DIR=$own cargo test --locked --quiet --workspace --all-features)
(cd python && CARGO_TARGET_DIR=$own cargo clippy --locked --quiet --workspace --all-targets --all-features -- -D warnings)
cargo clippy --locked --quiet -p vmarea-cli --all-targets --features parquet -- -D warnings
(cd "$own" && "$python" -m mypy.stubtest vmarea --ignore-disjoint-bases)
"$python" ci/checks/python/cost.py "$(VMAREA='' program vmarea packaged)" corpus/asan.vmtrace

# The program with Parquet writes the same files as the module.
CARGO_TARGET_DIR=$own/cli cargo build --release --locked --quiet -p vmarea-cli --features parquet
VMAREA=$own/cli/release/vmarea "$python" -m pytest -q -p no:cacheprovider python/tests

# The wheel, on a machine that has neither Rust nor the other packages.
temporary
room=$work
wheel "$room"
"$venv/bin/auditwheel" show "$room"/vmarea-*.whl
python3 -m venv "$room/venv"
(
    unset PYTHONPATH
    export PATH=/usr/bin:/bin
    "$room/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$room"/vmarea-*.whl
    cd "$room"
    venv/bin/python -c "
import vmarea
replay = vmarea.replay('$root/corpus/gcc.vmtrace', ['linux'], tables=['events'])
assert replay.verify.differences == 0 and len(replay.tables['events']) == replay.events
assert vmarea.explain('/proc/self/maps').mappings > 5
assert vmarea.record(['true'], 'a.vmtrace').status == 0
"
)
# `pip install ./python` as documented, with the build tools from the package index.
python3 -m venv "$room/source"
CARGO_TARGET_DIR=$own "$room/source/bin/pip" install --quiet --disable-pip-version-check ./python
(cd "$room" && unset PYTHONPATH && source/bin/python -c 'import vmarea; vmarea.explain("/proc/self/maps")')
echo "python: ok"
