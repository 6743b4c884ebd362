"""The tables reach Polars, DuckDB, pandas and pyarrow through the Arrow C data interface, without a copy."""

import os
import resource
import subprocess
import sys

import duckdb
import pandas
import polars
import pyarrow
import pytest

import vmarea

ALL = ["events", "vmas", "lifetimes", "merges", "differences"]
MILLION = 1_000_000


@pytest.fixture(scope="module")
def replay(corpus):
    return vmarea.replay(corpus("regions"), ["linux", "thesis"], tables=ALL)


@pytest.mark.parametrize("name", ALL)
def test_every_reader_sees_the_same_rows(name, replay):
    table = replay.tables[name]
    of_polars = polars.DataFrame(table)
    of_pyarrow = pyarrow.table(table)
    assert of_polars.columns == table.column_names == of_pyarrow.column_names == list(table.descriptions)
    assert len(table) == len(of_polars) == len(of_pyarrow)
    assert of_polars.rows() == [tuple(row.values()) for row in of_pyarrow.to_pylist()]
    assert duckdb.from_arrow(of_pyarrow).fetchall() == of_polars.rows()
    of_pandas = pandas.DataFrame.from_arrow(table)
    assert list(of_pandas.columns) == table.column_names and len(of_pandas) == len(table)
    assert [field.metadata[b"description"].decode() for field in of_pyarrow.schema] == [
        table.descriptions[column] for column in table.column_names
    ]
    for field in of_pyarrow.schema:
        assert field.nullable or of_pyarrow[field.name].null_count == 0
    assert pyarrow.schema(table) == of_pyarrow.schema


def test_tables_can_be_read_twice_and_outlive_the_result(corpus):
    table = vmarea.replay(corpus("gcc"), ["linux"], tables=["events"]).tables["events"]
    first, second = polars.DataFrame(table), polars.DataFrame(table)
    rows = table.num_rows
    del table
    assert first.equals(second)
    assert first["event"].to_list() == list(range(1, rows + 1))


def test_duckdb_reads_a_table_by_the_name_of_its_variable(replay):
    merges = replay.tables["merges"]
    counted = duckdb.sql("SELECT count(*) FROM merges WHERE policy = 'linux' AND merge IS NOT NULL").fetchall()
    assert counted == [(sum(replay.policies["linux"].merges.values()),)]
    assert repr(merges).startswith(f"<vmarea.Table merges: {len(merges)} rows; attempt: uint64, ")


# A module that cannot be imported, as if it were not installed.
HIDDEN = """
import sys
sys.modules["pyarrow"] = None
import vmarea
replay = vmarea.replay(sys.argv[1], ["linux", "thesis"], tables=["events", "vmas", "lifetimes", "merges", "differences"])
"""


@pytest.mark.parametrize(
    "use",
    [
        "import polars; frames = {name: polars.DataFrame(one) for name, one in replay.tables.items()}\n"
        "assert len(frames['events']) == replay.events\n"
        "print(frames['merges']['policy'].unique().sort().to_list())",
        "import duckdb; merges = replay.tables['merges']\n"
        "print([name for name, in duckdb.sql('SELECT DISTINCT policy FROM merges ORDER BY 1').fetchall()])",
        "vmarea.export(sys.argv[1], sys.argv[2]); import duckdb\n"
        "found = duckdb.sql(f\"SELECT DISTINCT policy FROM '{sys.argv[2]}/merges.parquet' ORDER BY 1\").fetchall()\n"
        "print([name for name, in found if name in ('linux', 'thesis')])",
    ],
    ids=["polars", "duckdb", "parquet"],
)
def test_pyarrow_is_not_needed(use, corpus, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN + use, corpus("regions"), tmp_path], capture_output=True, text=True
    )
    assert done.stdout == "['linux', 'thesis']\n", done.stderr


@pytest.fixture(scope="module")
def million(tmp_path_factory, binary):
    """Returns the events of a trace with a million calls, from a log of strace."""
    folder = tmp_path_factory.mktemp("million")
    with open(folder / "log", "w") as log:
        log.write('1 execve("/bin/a", ["a"], 0x0) = 0\n')
        at = 0x7F0000000000
        line = (
            f"1 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = {at:#x}\n"
            f"1 munmap({at:#x}, 4096) = 0\n"
        )
        log.write(line * (MILLION // 2))
    done = binary("trace", "import", "--from", "strace", folder / "log", "-o", folder / "a.vmtrace")
    assert done.returncode == 0, done.stderr
    return vmarea.replay(folder / "a.vmtrace", ["linux"], tables=["events"]).tables["events"]


def addresses(column):
    """Returns the address of each buffer of each chunk of a column of pyarrow."""
    return [[buffer and buffer.address for buffer in chunk.buffers()] for chunk in column.chunks]


def test_a_million_events_reach_polars_without_a_copy(million):
    assert len(million) >= MILLION
    before = resident()
    frame = polars.DataFrame(million)
    grown = resident() - before
    assert million.nbytes > 100_000_000
    assert grown < million.nbytes // 20, f"{grown} of {million.nbytes} bytes"
    shared = pyarrow.table(million)
    assert shared["event"].num_chunks > 10, "not one batch"
    for column in frame.columns:
        again = pyarrow.chunked_array(frame[column])
        assert again.type == shared[column].type
        assert addresses(again) == addresses(shared[column]), column
    assert frame["event"].max() == len(million)
    assert frame["call"].value_counts().sort("call")["count"].to_list()[-2:] == [MILLION // 2] * 2


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def test_parquet_has_the_same_rows_as_memory(corpus, tmp_path, replay, binary):
    out = tmp_path / "by python"
    assert vmarea.export(corpus("regions"), out, ["linux", "thesis"]) is None
    assert sorted(os.listdir(out)) == sorted(f"{name}.parquet" for name in ALL)
    for name in ALL:
        assert polars.read_parquet(out / f"{name}.parquet").equals(polars.DataFrame(replay.tables[name])), name
        assert duckdb.sql(f"SELECT count(*) FROM '{out}/{name}.parquet'").fetchall() == [(len(replay.tables[name]),)]
    done = binary("export", corpus("regions"), "--parquet", tmp_path / "b", "--policy", "linux", "--policy", "thesis")
    if "built without Parquet" in done.stderr:
        pytest.skip("this program has no Parquet")
    assert done.returncode == 0, done.stderr
    for name in ALL:
        assert (tmp_path / "b" / f"{name}.parquet").read_bytes() == (out / f"{name}.parquet").read_bytes(), name


def test_an_export_of_a_torn_trace_says_so(torn, tmp_path):
    end = vmarea.export(torn, tmp_path / "out")
    assert "only the events before it are usable" in end
    assert polars.read_parquet(tmp_path / "out" / "events.parquet").height == vmarea.replay(torn).events
