"""Traces and results in an object store: an S3 server on loopback (moto)."""

import shutil
import socket
import subprocess
import sys
import time

import duckdb
import pyarrow.parquet
import pytest
from pyarrow import fs
from test_sweep import sweep

pytestmark = pytest.mark.slow
NAMES = ["gcc", "regions"]


@pytest.fixture
def store(monkeypatch):
    """Returns a function that gives the URI of a path in the store, and the store as a file system."""
    for name, value in [("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("EC2_METADATA_DISABLED", "true")]:
        monkeypatch.setenv(f"AWS_{name}", value)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "import sys; from moto.server import main; main(sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", code, "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL
    ) as server:
        until = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert server.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        endpoint = f"127.0.0.1:{port}"
        system = fs.S3FileSystem(
            endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        system.create_dir("bucket")
        query = f"?endpoint_override={endpoint}&scheme=http&region=us-east-1"
        yield (lambda path: f"s3://bucket/{path}{query}"), system
        server.kill()


def test_a_sweep_reads_and_writes_an_object_store(store, corpus, tmp_path):
    uri, system = store
    here = tmp_path / "traces" / "host=a"
    here.mkdir(parents=True)
    for name in NAMES:
        shutil.copy(corpus(name), here)
        with system.open_output_stream(f"bucket/traces/host=a/{name}.vmtrace") as out:
            out.write(corpus(name).read_bytes())
    with system.open_output_stream("bucket/traces/host=a/bad.vmtrace") as out:
        out.write(b"no trace")
    (here / "bad.vmtrace").write_text("no trace")

    status, summary, err = sweep(uri("traces/**/*.vmtrace"), "--out", uri("results"), "--json")
    assert (status, summary["ok"], summary["bad"]) == (0, 2, 1), err
    assert sweep(here.parent, "--out", tmp_path / "out")[0] == 0
    files = system.get_file_info(fs.FileSelector("bucket/results/runs", recursive=True))
    tables = [pyarrow.parquet.read_table(file.path, filesystem=system) for file in files if file.is_file]
    remote = pyarrow.concat_tables(tables)
    columns = "program, policy, status, error, labels['host'], size, events, vmas_peak, vmas_exit, merges, refusals"
    of_store = duckdb.sql(f"SELECT {columns} FROM remote ORDER BY ALL").fetchall()
    of_disk = duckdb.sql(f"SELECT {columns} FROM '{tmp_path}/out/runs/*/*.parquet' ORDER BY ALL").fetchall()
    assert of_store == of_disk and len(of_store) == 5

    status, summary, _ = sweep(uri("traces"), "--out", uri("results"), "--json")
    assert (status, summary["skipped"]) == (0, 3)
