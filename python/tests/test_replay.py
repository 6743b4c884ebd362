"""`replay` and `compare` return what the command line prints as JSON."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import vmarea

POLICIES = ["linux", "linux+different_anon_vmas"]


def json_of(done):
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["regions", "cow-children", "gcc"])
def test_a_replay_is_that_of_the_command_line(name, corpus, binary):
    replay = vmarea.replay(corpus(name), POLICIES)
    flags = [word for policy in POLICIES for word in ("--policy", policy)]
    assert replay.report == json_of(binary("replay", corpus(name), "--json", *flags))
    assert replay.complete
    assert replay.policies["linux"].vmas_peak == replay.report["policies"]["linux"]["vmas_peak"]
    assert replay.verify.processes > 0
    assert replay.tables == {}


def test_the_calls_that_failed_are_those_of_the_command_line(corpus):
    replay = vmarea.replay(corpus("postgres"), ["linux"])
    listed = replay.report["failed_calls"]
    assert listed
    for ours, theirs in zip(replay.failed_calls, listed, strict=True):
        assert (ours.call, ours.errno, ours.count) == (theirs["call"], theirs["errno"], theirs["count"])
        assert (ours.reason, ours.first) == (theirs["reason"], theirs["first"]["text"])


def test_more_differences_are_listed_on_demand(corpus):
    one = vmarea.replay(corpus("chromium"), ["linux"])
    every = vmarea.replay(corpus("chromium"), ["linux"], differences="all")
    shown = sum(len(group["shown"]) for group in every.report["differences"])
    assert shown == every.verify.differences == one.verify.differences


def test_a_comparison_is_that_of_the_command_line(corpus, binary, tmp_path, torn, other):
    folder = tmp_path / "traces"
    folder.mkdir()
    for trace in [corpus("regions"), corpus("gcc"), torn, other]:
        shutil.copy(trace, folder)
    (folder / "notes.txt").write_text("not a trace")
    (folder / "named-otherwise").write_bytes(corpus("qemu").read_bytes())
    compared = vmarea.compare(folder, POLICIES)
    flags = [word for policy in POLICIES for word in ("--policy", policy)]
    done = binary("compare", folder, "--json", *flags)
    expected = json.loads(done.stdout)
    assert [one.trace for one in compared.traces] == [one["trace"] for one in expected["traces"]]
    for ours, theirs in zip(compared.traces, expected["traces"], strict=True):
        assert ours.differing_calls == theirs["differing_calls"]
        assert (ours.end is None) == theirs["complete"]
        assert ours.report == {name: theirs[name] for name in ours.report}
    assert compared.failed == {one["trace"]: one["why"] for one in expected["failed"]}
    assert [os.path.basename(path) for path in compared.skipped] == expected["skipped"] == ["notes.txt"]
    assert any(one.differing_calls for one in compared.traces)


def test_an_empty_folder_has_nothing_to_compare(tmp_path, binary):
    done = binary("compare", tmp_path, "--policy", "linux", "--policy", "thesis")
    with pytest.raises(vmarea.NothingToDo) as raised:
        vmarea.compare(tmp_path, ["linux", "thesis"])
    assert done.returncode == raised.value.status == 4
    assert str(raised.value) in done.stderr


def test_other_threads_run_during_a_replay(corpus):
    replayed = threading.Event()
    beats = []

    def beat():
        while not replayed.is_set():
            beats.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=beat)
    thread.start()
    begun = time.perf_counter()
    vmarea.replay(corpus("asan"))
    ended = time.perf_counter()
    replayed.set()
    thread.join()
    # With the interpreter's lock held, a beat could only fall between a time and the call beside it.
    during = sum(begun < beat < ended for beat in beats)
    assert during > 4, (begun, ended, len(beats))


LONG = """
import sys, vmarea
print("begun", flush=True)
try:
    while True:
        vmarea.replay(sys.argv[1])
        print("again", flush=True)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_a_replay_in_the_middle(corpus):
    # All policies on the longest trace: one replay takes seconds, an interrupt must not wait for its end.
    child = subprocess.Popen([sys.executable, "-c", LONG, corpus("asan")], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    rest = child.communicate(timeout=60)[0].splitlines()
    assert rest[-1] == "interrupted"
    assert child.returncode == 0
