"""What the tests share: the corpus, the program `vmarea` (VMAREA names it), and damaged traces."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def corpus():
    """Returns a function that gives the path of a recorded program."""
    return lambda name: ROOT / "corpus" / f"{name}.vmtrace"


@pytest.fixture(scope="session")
def binary():
    """Returns a function that runs the program `vmarea`."""
    path = os.environ.get("VMAREA") or shutil.which("vmarea")
    assert path, "VMAREA must name the program vmarea"

    def run(*arguments, **options):
        words = [path, *map(str, arguments)]
        # With COLUMNS, messages would be wrapped.
        env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        return subprocess.run(words, capture_output=True, text=True, timeout=120, env=env, **options)

    return run


@pytest.fixture
def torn(corpus, tmp_path):
    """Returns a trace that ends in the middle of a block, not of its first one."""
    data = corpus("postgres").read_bytes()
    path = tmp_path / "torn.vmtrace"
    path.write_bytes(data[: len(data) * 2 // 3])
    return path


@pytest.fixture
def future(corpus, tmp_path):
    """Returns a trace whose header names a format version that does not exist yet."""
    data = bytearray(corpus("regions").read_bytes())
    data[8] = 99
    path = tmp_path / "future.vmtrace"
    path.write_bytes(data)
    return path


@pytest.fixture
def other(tmp_path):
    """Returns a file that is no trace."""
    path = tmp_path / "other.vmtrace"
    path.write_text("this is not a trace\n" * 10)
    return path
