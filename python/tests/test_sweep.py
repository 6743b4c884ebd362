"""A sweep by local processes: bad traces become rows, nothing torn is left, and starting again goes on."""

import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

import duckdb
import pytest

SWEEP = pathlib.Path(__file__).parents[1] / "sweep"
NAMES = ["gcc", "regions", "cow-children", "node-wasm"]
POLICIES = "linux,linux+different_anon_vmas"


@pytest.fixture
def traces(corpus, tmp_path, torn, future, other):
    """Returns a folder of good and bad traces and other files; the damaged ones are copies in it."""
    folder = tmp_path / "traces" / "host=web1"
    folder.mkdir(parents=True)
    for name in NAMES:
        shutil.copy(corpus(name), folder)
    for path in (torn, future, other):
        shutil.move(path, folder)
    (folder / "notes.txt").write_text("not a trace")
    (folder / "core.1234").write_bytes(b"\x7fELF" * 100)
    return tmp_path / "traces"


def start(*arguments, code="from vmarea_sweep.command import main", limit=None, **environment):
    """Starts a sweep as a process of its own."""
    code = f"import sys; {code}; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "--policies", POLICIES, *map(str, arguments)]
    return subprocess.Popen(
        words,
        env={**os.environ, "PYTHONPATH": str(SWEEP), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )


def sweep(*arguments, **options):
    """Runs a sweep; returns its status, its summary (or what it prints) and its messages."""
    done = start(*arguments, **options)
    out, err = done.communicate(timeout=300)
    return done.returncode, json.loads(out) if out.startswith("{") else out, err


def rows(out, columns="*"):
    return duckdb.sql(f"SELECT {columns} FROM '{out}/runs/*/*.parquet' ORDER BY ALL").fetchall()


def test_bad_traces_are_rows_and_the_rest_is_done(traces, tmp_path):
    out = tmp_path / "out"
    status, summary, err = sweep(traces, "--out", out, "--json")
    assert status == 0, err
    assert {name: summary[name] for name in ("traces", "ok", "cut_off", "bad", "failed", "skipped")} == {
        "traces": 7, "ok": 4, "cut_off": 1, "bad": 2, "failed": 0, "skipped": 0,
    }  # fmt: skip
    found = rows(out, "DISTINCT parse_filename(trace), status, coalesce(error, ''), labels['host']")
    by_name = {name: (status, error) for name, status, error, host in found if host == "web1"}
    assert len(by_name) == len(found) == 7
    assert by_name["future.vmtrace"] == (
        "bad",
        "the trace has format version 99, this program reads up to 2: use a newer vmarea",
    )
    assert by_name["other.vmtrace"][1].startswith("this is not a vmarea trace")
    assert by_name["torn.vmtrace"][0] == "cut off"
    assert "only the events before it are usable" in by_name["torn.vmtrace"][1]
    assert all(by_name[f"{name}.vmtrace"] == ("ok", "") for name in NAMES)

    begun = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    status, summary, _ = sweep(traces, "--out", out, "--json")
    assert (status, summary["skipped"]) == (0, 7)
    assert begun == {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}


@pytest.mark.slow
def test_a_comparison_covers_what_is_usable_of_a_torn_trace(traces, tmp_path):
    out = tmp_path / "out"
    status, summary, err = sweep(traces, "--out", out, "--json", "--compare")
    assert (status, summary["ok"], summary["cut_off"], summary["bad"]) == (0, 4, 1, 2), err
    compared = rows(out, "parse_filename(trace), differing_calls, len(differences)")
    by_name = {name: (calls, kinds) for name, calls, kinds in compared if calls is not None}
    assert set(by_name) == {f"{name}.vmtrace" for name in [*NAMES, "torn"]}
    assert by_name["regions.vmtrace"][0] > 0 and by_name["regions.vmtrace"][1] > 0


@pytest.mark.slow
def test_a_glob_can_name_other_files(traces, tmp_path):
    status, summary, _ = sweep(f"{traces}/**/*", "--out", tmp_path / "out", "--json")
    assert (status, summary["traces"], summary["bad"]) == (0, 9, 4)


def test_an_interrupted_sweep_goes_on(corpus, tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    for n in range(16):
        shutil.copy(corpus(NAMES[n % len(NAMES)]), folder / f"{n}.vmtrace")
    out, whole = tmp_path / "out", tmp_path / "whole"
    running = start(folder, "--out", out, "--json", "--workers", 1)
    until = time.monotonic() + 60
    while len(list(out.rglob("part-*"))) < 3:
        assert time.monotonic() < until
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "stopped: interrupted" in err and "start the same command again" in err
    done = len(list(out.rglob("part-*")))
    assert 3 <= done < 16
    status, summary, _ = sweep(folder, "--out", out, "--json", "--batch", 3)
    assert (status, summary["skipped"], summary["ok"]) == (0, done, 16 - done)
    assert sweep(folder, "--out", whole)[0] == 0
    assert rows(out) == rows(whole)


def test_a_full_disk_stops_the_sweep_and_leaves_nothing_torn(traces, tmp_path):
    out = tmp_path / "out"

    def little():
        # Python ignores SIGXFSZ, so that a write fails as on a full disk; parts of results are larger than this.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    status, _, err = sweep(traces, "--out", out, limit=little)
    assert status == 1
    assert f"stopped: cannot write to {out}: " in err and "start the same command again" in err
    assert not list(out.rglob("*.parquet")) and not list(out.rglob(".*"))
    status, summary, _ = sweep(traces, "--out", out, "--json")
    assert (status, summary["skipped"], summary["ok"]) == (0, 0, 4)


@pytest.mark.slow
def test_a_trace_that_ends_its_worker_becomes_a_row(traces, tmp_path, binary):
    out = tmp_path / "out"
    shutil.copy(traces / "host=web1" / "gcc.vmtrace", traces / "poison.vmtrace")
    fake = tmp_path / "vmarea"
    real = os.environ["VMAREA"]
    fake.write_text(f'#!/bin/sh\ncase "$*" in *poison*) kill -9 $PPID;; esac\nexec {real} "$@"\n')
    fake.chmod(0o755)
    status, summary, err = sweep(traces, "--out", out, "--json", "--batch", 4, VMAREA=str(fake))
    assert status == 1, err
    assert (summary["ok"], summary["cut_off"], summary["bad"], summary["failed"]) == (4, 1, 2, 1)
    errors = rows(out, "error, status, parse_filename(trace)")
    assert [row for row in errors if row[1] == "failed"][0][2] == "poison.vmtrace"
    # The failure is tried again.
    status, summary, _ = sweep(traces, "--out", out, "--json")
    assert (status, summary["skipped"], summary["ok"]) == (0, 7, 1)
    assert not [row for row in rows(out, "status") if row == ("failed",)]


def test_results_belong_to_one_list_of_policies(traces, tmp_path):
    assert sweep(traces, "--out", tmp_path / "out")[0] == 0
    status, _, err = sweep(traces, "--out", tmp_path / "out", "--compare")
    assert status == 1 and "contains the results of another sweep" in err


def test_a_wrong_policy_is_refused_before_anything_is_done(traces, tmp_path):
    for policy in ["no-such-policy", "linux+either_survives"]:
        status, _, err = sweep(traces, "--out", tmp_path / "out", "--policies", policy)
        assert status == 2
        assert err.startswith("vmarea-sweep: invalid value") and policy in err and "more information" not in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("module", "engine", "words"),
    [
        ("pyarrow", "local", "a sweep needs pyarrow"),
        ("pyarrow", "ray", "a sweep needs pyarrow"),
        ("ray", "ray", "--on ray needs Ray"),
    ],
)
def test_a_missing_module_is_named(module, engine, words, traces, tmp_path):
    code = f"sys.modules['{module}'] = None; from vmarea_sweep.command import main"
    status, _, err = sweep(traces, "--out", tmp_path / "out", "--on", engine, code=code)
    assert status == 1
    assert err.startswith("vmarea-sweep: ") and words in err and "pip install" in err
    assert "Traceback" not in err


def test_nothing_to_do_and_no_program(tmp_path, traces):
    assert sweep(tmp_path / "traces" / "*.nothing", "--out", tmp_path / "out")[0] == 4
    status, _, err = sweep(tmp_path / "absent", "--out", tmp_path / "out")
    assert status == 1 and "no such file or folder" in err
    status, _, err = sweep(traces, "--out", tmp_path / "out", VMAREA="/no/such/program")
    assert status == 1 and "cannot run vmarea" in err


@pytest.mark.parametrize("kind", ["refused", pytest.param("silent", marks=pytest.mark.slow)])
def test_a_cluster_that_does_not_answer_is_given_up(kind, traces, tmp_path):
    pytest.importorskip("ray")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if kind == "silent":
            # Accepts connections, and never answers.
            listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        begun = time.monotonic()
        status, _, err = sweep(
            traces, "--out", tmp_path / "out", "--on", "ray", "--address", address, "--connect-timeout", 8
        )
    assert status == 1
    assert f"no Ray cluster at {address}" in err.splitlines()[-1], err
    assert time.monotonic() - begun < 60
