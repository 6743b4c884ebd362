"""The notebook runs, and its outputs in the repository are those of a run.

VMAREA_RENEW=1 writes the outputs anew.
"""

import os
import pathlib

import nbclient
import nbformat

NOTEBOOK = pathlib.Path(__file__).parents[1] / "examples" / "corpus.ipynb"


def texts(notebook):
    """Returns the text of each output of each cell."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[one.get("text") or one["data"]["text/plain"] for one in cell.outputs] for cell in cells]


def test_the_notebook_runs_and_its_outputs_are_current():
    kept = nbformat.read(NOTEBOOK, as_version=4)
    run = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(run, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}})
    client.execute()
    for cell in run.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            # Only the text is kept: the form in HTML is long, and the same.
            output.get("data", {}).pop("text/html", None)
    run.metadata = kept.metadata
    if os.environ.get("VMAREA_RENEW"):
        nbformat.write(run, NOTEBOOK)
        kept = run
    assert any(texts(run)), "the cells print nothing"
    assert texts(run) == texts(kept), "run this test with VMAREA_RENEW=1"
