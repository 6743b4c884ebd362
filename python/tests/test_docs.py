"""The code and the queries in the documentation run, on real traces."""

import contextlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import duckdb
import pytest

import vmarea

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
DAY = 24 * 3600
BEGIN, END = "<!-- Generated from vmarea_sweep.rows.COLUMNS. -->\n", "<!-- Generated up to here. -->\n"


def blocks(page, language):
    """Returns the code blocks of a page in a language; a block in a list loses its indentation."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]


def queries(page):
    """Returns the SQL statements of a page."""
    code = "\n".join(blocks(page, "sql"))
    return [one.strip() for one in re.sub(r"--.*", "", code).split(";") if one.strip()]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Returns a folder with traces of two weeks, one of them cut off, as working directory."""
    folder = tmp_path_factory.mktemp("docs")
    now = time.time()
    for name, days in [("regions", 1), ("gcc", 1), ("cow-children", 10), ("java-g1", 2), ("thousands-of-threads", 3)]:
        path = folder / "traces" / "host=web1" / f"{name}.vmtrace"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "corpus" / f"{name}.vmtrace", path)
        os.utime(path, (now - days * DAY,) * 2)
    (folder / "corpus").symlink_to(ROOT / "corpus")
    bad = folder / "traces" / "host=web1" / "cut.vmtrace"
    bad.write_bytes((ROOT / "corpus" / "gcc.vmtrace").read_bytes()[:9000])
    with contextlib.chdir(folder):
        yield folder


def sweep(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "sweep")}
    words = [sys.executable, "-m", "vmarea_sweep.command", *arguments, "--quiet"]
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_the_code_for_python_runs(place):
    for trace in (place / "traces" / "host=web1").glob("[r-t]*"):
        shutil.copy(trace, place / "traces")
    names, said = {}, io.StringIO()
    code = blocks("python.md", "python")
    assert len(code) >= 5
    with contextlib.redirect_stdout(said):
        for block in code:
            exec(compile(block, "python.md", "exec"), names)
    for path in (place / "traces").glob("*.vmtrace"):
        path.unlink()
    gains = {row["program"]: row["fewer_at_exit"] for row in names["gains"].iter_rows(named=True)}
    assert gains["regions"] == 39, "the answer to the question of the section"
    assert gains["thousands-of-threads"] == 0
    assert isinstance(names["result"], vmarea.Replay)
    assert "no-such.vmtrace" in said.getvalue()


def test_the_queries_about_tables_run(place):
    vmarea.export("traces/host=web1/regions.vmtrace", "dir")
    merges, peaks, there = (duckdb.sql(query).fetchall() for query in queries("tables.md"))
    assert ("mprotect", "anon_vma", 19) in merges
    assert {policy: peak for policy, _, peak, _ in peaks}["linux"] == 102
    assert {made_by for made_by, *_ in there} >= {"mmap", "mprotect", "snapshot"}
    assert sum(vmas for _, _, vmas, _ in there) == 102


def answers(of):
    """Runs all queries of the cookbook; returns those of a sweep, by their first words."""
    connection = duckdb.connect()
    found = {}
    for query in queries("fleet.md"):
        answer = connection.execute(query).fetchall()
        found[next((word for word in of if word in query), query)] = answer
    return found


def test_the_cookbook_answers_its_questions(place):
    switches = "linux+different_anon_vmas,linux+update_pgoff,vmarea"
    sweep("traces/**/*.vmtrace", "--policies", switches, "--out", "results")
    found = answers(["AS merged", "other.policy", "percent", "weeks", "status <>", "undecided"])
    assert found["AS merged"][:2] == [("java", 214, 212, 2), ("commit", 102, 102, 39)], "those of corpus/README.md"
    gains = {(program, policy): exit for program, policy, _, _, _, exit in found["other.policy"]}
    assert gains["commit", "linux+different_anon_vmas"] == 39
    assert gains["commit", "vmarea"] >= 39
    assert found["percent"] == [], "no program of the corpus nears its limit"
    programs = {program: (before, now) for program, before, now, _ in found["weeks"]}
    assert programs["python3"][1] is None and programs["commit"][0] is None, "only in one of the weeks"
    assert [(status, traces) for status, _, traces in found["status <>"]] == [("bad", 1)]
    assert found["undecided"] == [], "nothing differs"

    shutil.rmtree("results")
    sweep("traces/**/*.vmtrace", "--policies", "linux-6.1,linux-6.18", "--compare", "--out", "results")
    kinds = answers(["first_did"])["first_did"]
    assert any(call == "mmap" and "commit" in programs for call, *_, programs in kinds), kinds
    assert not any(re.search("0x[0-9a-f]+", first + other) for _, _, first, other, _, _ in kinds)


def test_a_process_that_nears_its_limit_is_found(place):
    sweep("traces/host=web1", "--policies", "linux", "--out", "limits")
    connection = duckdb.connect()
    connection.execute(queries("fleet.md")[1].replace("results/", "limits/"))
    query = next(query for query in queries("fleet.md") if "percent" in query).replace("0.7", "0.05")
    (row,) = connection.execute(query).fetchall()
    assert (row[0], row[2]) == ("many_threads", 4023)


def test_the_columns_of_a_sweep_are_documented():
    sys.path.insert(0, str(ROOT / "python" / "sweep"))
    from vmarea_sweep import rows

    lines = "".join(f"| `{name}` | {kind} | {about} |\n" for name, kind, about in described(rows))
    page = (DOCS / "fleet.md").read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    whole = f"{before}{BEGIN}\n| column | type | meaning |\n|---|---|---|\n{lines}\n{END}{after}"
    if os.environ.get("VMAREA_RENEW"):
        (DOCS / "fleet.md").write_text(whole)
        page = whole
    assert page == whole, "run this test with VMAREA_RENEW=1"


def described(rows):
    """Returns name, type and meaning of each column; types as SQL's readers know them."""
    for name, kind, about in rows.COLUMNS:
        text = str(kind)
        short = "list of structs" if text.startswith("list") else "map of strings" if text.startswith("map") else text
        yield name, short, about[0].upper() + about[1:] + "."
