"""Failures are exceptions with the command line's words and its exit status."""

import os
import pathlib
import subprocess
import sys

import pytest

import vmarea


def said(done):
    """Returns the message of a failed command."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("vmarea: ")]
    return lines[-1].removeprefix("vmarea: ")


@pytest.mark.parametrize("kind", ["future", "other", "absent", "folder", "empty", "header"])
def test_a_trace_that_cannot_be_replayed(kind, request, binary, corpus, tmp_path):
    if kind == "absent":
        path = tmp_path / "absent.vmtrace"
    elif kind == "folder":
        path = tmp_path
    elif kind == "empty":
        path = tmp_path / "empty.vmtrace"
        path.touch()
    elif kind == "header":
        # Ends before the first event.
        path = tmp_path / "header.vmtrace"
        path.write_bytes(corpus("regions").read_bytes()[:1500])
    else:
        path = request.getfixturevalue(kind)
    for command, function in [
        (["replay", path], lambda: vmarea.replay(path)),
        (["export", path, "--parquet", tmp_path / "a"], lambda: vmarea.export(path, tmp_path / "b")),
    ]:
        done = binary(*command)
        with pytest.raises(vmarea.Error) as raised:
            function()
        if "built without Parquet" not in done.stderr:
            assert str(raised.value) == said(done)
            assert raised.value.status == done.returncode
    with pytest.raises(vmarea.Error) as raised:
        vmarea.compare(path if kind != "folder" else [path / "x"], ["linux", "thesis"])
    assert not list(tmp_path.glob("b/*"))


def test_a_torn_trace_gives_what_is_before(torn, binary):
    replay = vmarea.replay(torn, tables=["events"])
    assert not replay.complete
    assert replay.end in binary("replay", torn).stderr
    assert 0 < replay.events == len(replay.tables["events"])


def test_policies_and_tables_that_do_not_exist(corpus, binary):
    with pytest.raises(vmarea.UsageError) as raised:
        vmarea.replay(corpus("regions"), ["no-such-policy"])
    done = binary("replay", corpus("regions"), "--policy", "no-such-policy")
    assert " ".join(str(raised.value).split()) in " ".join(done.stderr.split())
    assert raised.value.status == done.returncode == 2
    with pytest.raises(vmarea.UsageError, match="the tables are events, vmas"):
        vmarea.replay(corpus("regions"), tables=["event"])
    with pytest.raises(vmarea.UsageError, match="a list is needed"):
        vmarea.replay(corpus("regions"), "linux")
    with pytest.raises(vmarea.UsageError, match="two policies"):
        vmarea.compare(corpus("regions"), ["linux"])


def test_processes_that_cannot_be_explained(binary, tmp_path):
    for pid in [2, 4_000_000]:
        done = binary("explain", "-p", pid)
        with pytest.raises(vmarea.Error) as raised:
            vmarea.explain(pid)
        assert str(raised.value) == said(done)
        assert raised.value.status == done.returncode
    for path in [tmp_path / "absent", tmp_path]:
        with pytest.raises(vmarea.Error) as raised:
            vmarea.explain(path)
        assert str(raised.value) == said(binary("explain", "--from", path))
    words = tmp_path / "words"
    words.write_text("no mappings here\n")
    done = binary("explain", "--from", words)
    with pytest.raises(vmarea.Error) as raised:
        vmarea.explain(words)
    assert (str(raised.value), raised.value.status) == (said(done), done.returncode)


def test_the_name_of_standard_input_is_that_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(vmarea.Error, match="cannot read -: No such file"):
        vmarea.explain("-")
    with open("/proc/self/maps") as maps:
        (tmp_path / "-").write_text(maps.read())
    assert vmarea.explain("-").mappings > 1


def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(vmarea.Error, match="it is a pipe, which may never end: name a file$"):
        vmarea.explain(tmp_path / "pipe")


def test_a_program_that_cannot_be_recorded(binary, tmp_path):
    output = tmp_path / "a.vmtrace"
    for command in [["no-such-program"], [str(tmp_path)]]:
        done = binary("record", "-o", output, "--", *command)
        with pytest.raises(vmarea.Error) as raised:
            vmarea.record(command, output)
        assert str(raised.value) == said(done)
    with pytest.raises(vmarea.Error) as raised:
        vmarea.record(["true"], tmp_path / "no" / "folder.vmtrace")
    assert str(raised.value) == said(binary("record", "-o", tmp_path / "no" / "folder.vmtrace", "--", "true"))
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_no_file(corpus, tmp_path):
    # Files may have at most 16 KiB in this process, which Python sees as an error and not as a signal.
    code = (
        "import resource, sys, vmarea\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))\n"
        "try: vmarea.export(sys.argv[1], sys.argv[2])\n"
        "except vmarea.Error as error: print(error)\n"
    )
    out = tmp_path / "tables"
    done = subprocess.run(
        [sys.executable, "-c", code, corpus("shared-arena"), out], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"cannot write {out}/"), done
    assert "File too large" in done.stdout
    assert os.listdir(out) == []


def test_exceptions_can_be_caught_as_pythons_own():
    assert issubclass(vmarea.PermissionMissing, PermissionError)
    assert issubclass(vmarea.UsageError, ValueError)
    with pytest.raises(TypeError):
        vmarea.replay(3.5)
    assert pathlib.Path(vmarea.__file__).with_name("py.typed").exists()
