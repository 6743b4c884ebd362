"""`record` writes traces that replay without a difference, and leaves Python's own children and signals alone."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import vmarea

# A sandbox may forbid tracing.
with tempfile.TemporaryDirectory() as folder:
    try:
        vmarea.record(["true"], os.path.join(folder, "a.vmtrace"))
    except vmarea.PermissionMissing as missing:
        pytest.skip(str(missing), allow_module_level=True)


def test_a_program_is_recorded(tmp_path):
    path = tmp_path / "a.vmtrace"
    recording = vmarea.record(["sh", "-c", "echo; exit 7"], path)
    assert recording.status == 7
    assert recording.calls > 10
    assert recording.bytes == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()
    replay = vmarea.replay(path, ["linux"])
    assert replay.events == recording.events
    assert replay.verify.differences == 0, replay.report["differences"]
    assert os.listdir(tmp_path) == ["a.vmtrace"]


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_pipe_is_written_to_and_never_replaced(tmp_path):
    pipe, copy = tmp_path / "pipe", tmp_path / "a.vmtrace"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", pipe, copy]) as reader:
        recording = vmarea.record(["true"], pipe)
        assert reader.wait() == 0
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["a.vmtrace", "pipe"]
    assert vmarea.replay(copy, ["linux"]).events == recording.events


def test_a_signal_is_counted_as_shells_do(tmp_path):
    assert vmarea.record(["sh", "-c", "kill -9 $$"], tmp_path / "a.vmtrace").status == 137


def test_children_of_python_are_not_taken(tmp_path):
    child = subprocess.Popen(["sh", "-c", "sleep 0.2; exit 5"])
    vmarea.record(["sleep", "0.5"], tmp_path / "a.vmtrace")
    assert child.wait() == 5


def test_two_recordings_at_once(tmp_path):
    made = {}

    def record(number):
        made[number] = vmarea.record(["sh", "-c", f"sleep 0.2; exit {number}"], tmp_path / f"{number}.vmtrace")

    threads = [threading.Thread(target=record, args=(number,)) for number in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: one.status for number, one in made.items()} == {3: 3, 4: 4}


def test_a_running_process_is_recorded_and_left_running(tmp_path):
    code = "import mmap, time\nwhile True:\n  mmap.mmap(-1, 8192).close()\n  time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        time.sleep(0.3)
        path = tmp_path / "a.vmtrace"
        recording = vmarea.record(pid=child.pid, output=path, seconds=0.5, by="tracing")
        assert recording.calls > 5
        assert child.poll() is None
        child.kill()
    assert vmarea.replay(path, ["linux"]).calls == recording.calls


METHODS = """
import sys, vmarea
try:
    vmarea.record(["true"], sys.argv[1], by="observing")
except vmarea.PermissionMissing as error:
    print(error)
print(vmarea.record(["sh", "-c", "exit 7"], sys.argv[1], by="tracing").status)
"""


def test_the_method_of_recording_a_program_is_the_one_that_was_named(tmp_path):
    # Without capabilities, a program can be traced but not observed.
    rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*rights, sys.executable, "-c", METHODS, tmp_path / "a.vmtrace"], capture_output=True, text=True
    )
    missing, status = done.stdout.splitlines()
    assert "CAP_" in missing and status == "7", done.stderr


def test_observing_and_tracing_record_the_same_calls(tmp_path):
    made = {}
    for by in ("observing", "tracing"):
        try:
            made[by] = vmarea.record(["true"], tmp_path / f"{by}.vmtrace", by=by).calls
        except vmarea.PermissionMissing as missing:
            pytest.skip(str(missing))
    assert made["observing"] == made["tracing"] > 10


CODE = """
import sys, time, vmarea
interrupts = 0
try:
    vmarea.record(["sleep", "30"], sys.argv[1])
except KeyboardInterrupt:
    interrupts = 1
try:
    print(interrupts, flush=True)
    while True:
        time.sleep(0.05)
except KeyboardInterrupt:
    print("again")
"""


def test_ctrl_c_ends_the_program_and_keeps_its_trace(tmp_path):
    path = tmp_path / "a.vmtrace"
    child = subprocess.Popen([sys.executable, "-c", CODE, path], stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "1\n"
    # Python's own handler is as it was.
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[0] == "again\n"
    assert vmarea.replay(path, ["linux"]).complete


def test_wrong_arguments(tmp_path):
    path = tmp_path / "a.vmtrace"
    with pytest.raises(vmarea.UsageError, match="a command or a pid"):
        vmarea.record()
    with pytest.raises(vmarea.UsageError, match="above zero"):
        vmarea.record(pid=os.getppid(), output=path, seconds=0)
    with pytest.raises(vmarea.UsageError, match="auto, observing or tracing"):
        vmarea.record(pid=os.getppid(), output=path, by="looking")
    with pytest.raises(vmarea.UsageError, match="auto, observing or tracing"):
        vmarea.record(["true"], path, by="looking")
    with pytest.raises(vmarea.UsageError, match="counts calls by stops"):
        vmarea.record(["true"], path, checkpoint=5, by="observing")
    with pytest.raises(vmarea.UsageError, match="give seconds with a pid"):
        vmarea.record(["true"], path, seconds=5)
    with pytest.raises(vmarea.UsageError, match="a list is needed"):
        vmarea.record("true", path)
    with pytest.raises(vmarea.Error, match="no command to record"):
        vmarea.record([], path)
    with pytest.raises(vmarea.Error, match="there is no process 4000000"):
        vmarea.record(pid=4_000_000, output=path)
    assert not path.exists()
