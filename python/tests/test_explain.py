"""`explain` returns what the command line prints as JSON."""

import json
import mmap
import os
import pathlib

import polars
import pytest

import vmarea

MAPS = """\
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000001000-7f0000002000 rw-p 00000000 00:00 0
7f0000002000-7f0000003000 r--p 00000000 00:00 0
"""


def test_text_and_file_give_the_same_as_the_command_line(tmp_path, binary):
    path = tmp_path / "maps"
    path.write_text(pathlib.Path("/proc/self/maps").read_text())
    of_file = vmarea.explain(path, all=True)
    expected = json.loads(binary("explain", "--from", path, "--all", "--json").stdout)
    assert of_file.report == expected
    assert of_file.mappings == expected["mappings"] > 10
    assert of_file.advice == expected["advice"]["text"]
    of_text = vmarea.explain(path.read_text(), all=True)
    assert (of_text.mappings, of_text.reasons) == (of_file.mappings, of_file.reasons)
    assert vmarea.explain(str(path)).mappings == of_file.mappings


def test_the_table_has_a_row_for_each_mapping():
    explained = vmarea.explain(MAPS, all=True)
    rows = polars.DataFrame(explained.mappings_table)
    assert rows["start"].to_list() == [0x7F0000000000, 0x7F0000001000, 0x7F0000002000]
    assert (rows["end"] - rows["start"]).to_list() == [4096] * 3
    assert rows["perm"].to_list() == ["rw-p", "rw-p", "r--p"]
    assert rows["reason"][0] is None
    assert rows["reason"].null_count() == 1
    counted = {one.reason: one.mappings for one in explained.reasons}
    assert counted == dict(rows["reason"].drop_nulls().value_counts().iter_rows())
    assert vmarea.explain(MAPS).mappings_table is None
    assert vmarea.explain(MAPS.splitlines()[0]).mappings == 1, "one line is a text, too"


def test_a_process_is_explained():
    # Every second page is read-only, so none can be merged.
    with mmap.mmap(-1, 64 * mmap.PAGESIZE) as area:
        assert len(area)
        explained = vmarea.explain(os.getpid(), all=True, bpf=False)
    assert explained.pid == os.getpid()
    assert explained.source == "proc" or explained.source
    assert explained.mappings == len(explained.mappings_table) > 50
    assert sum(one.mappings for one in explained.reasons) == explained.mappings - 1
    with_rss = vmarea.explain(os.getpid(), all=True, rss=True, bpf=False)
    assert polars.DataFrame(with_rss.mappings_table)["rss"].sum() > 1 << 20


@pytest.mark.parametrize("number", [0, -1])
def test_a_wrong_number_is_a_usage_error(number):
    with pytest.raises(vmarea.UsageError, match="not the number of a process"):
        vmarea.explain(number)
