"""A sweep: many traces replayed under several policies, by all cores of a machine or of a Ray cluster.

`vmarea-sweep GLOB --policies A,B --out DIR` is the command (`command`). It lists the traces and removes those that
are done (`plan`), and an engine (`local` or `on_ray`) runs one task for each batch of the others. A task (`task`)
replays its traces one after another, makes rows of the results (`rows`), and stores them as one Parquet file
(`storage`). Nothing but counts returns to the process that started the sweep. docs/fleet.md describes the tables.

pyarrow is needed for all of it, Ray only for `--on ray`: `pip install './python/sweep[local]'` or `[ray]`. The replays are those of the program `vmarea` (`binary`).
"""
