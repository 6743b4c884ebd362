"""The engine `local`: a pool of processes on this machine."""

import concurrent.futures
import ctypes
import itertools
import multiprocessing
import signal
from concurrent.futures.process import BrokenProcessPool

from . import plan, rows, storage, task


PR_SET_PDEATHSIG = 1


def begin():
    """Lets the process that started the sweep decide when a worker ends: at Ctrl-C, or when it is killed itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def pool_of(workers):
    # A forked process would inherit the locks of pyarrow's threads, but not the threads.
    context = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(workers, mp_context=context, initializer=begin)


def run(job, batches, workers):
    """Yields the outcome of each batch, in any order; only a few batches wait in the pool at a time.

    A worker that dies breaks the pool. The batches that it had are then run in a pool of one process, trace by
    trace, so that the trace that kills its worker is known and becomes a row.
    """
    left = iter(batches)
    while True:
        pool, running, taken = pool_of(workers), {}, []
        try:
            submit(job, pool, running, taken, itertools.islice(left, 2 * workers))
            while running:
                finished, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in finished:
                    outcome = future.result()
                    del running[future]
                    submit(job, pool, running, taken, itertools.islice(left, 1))
                    yield outcome
            return
        except BrokenProcessPool:
            suspects = [*running.values(), *taken]
        finally:
            stop(pool)
        for batch in suspects:
            yield from one_by_one(job, batch)


def submit(job, pool, running, taken, batches):
    """Adds batches to a pool; `taken` has those that could not be added because the pool is broken."""
    for batch in batches:
        taken.append(batch)
        running[pool.submit(task.run, job, batch)] = batch
        taken.pop()


def stop(pool):
    """Ends a pool without waiting for tasks, also after Ctrl-C."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def one_by_one(job, batch):
    """Yields the outcome of each trace of a batch whose worker has died."""
    for trace in batch:
        pool = pool_of(1)
        try:
            yield pool.submit(task.run, job, [trace]).result()
        except BrokenProcessPool:
            yield died(job, trace)
        finally:
            stop(pool)


def died(job, trace):
    """Stores a row that says that every process died that has replayed the trace."""
    outcome = task.Outcome(traces=1)
    error = "the process that replayed it was killed, again when it was repeated alone (out of memory?)"
    outcome.count(rows.FAILED, f"{trace.path}: {error}")
    system, _ = storage.resolve(job.out)
    try:
        row = rows.of_failure(trace, rows.FAILED, error)
        storage.store(system, plan.failed_of(job, trace), rows.parquet_of([row]))
    except OSError as full:
        outcome.unwritten = f"cannot write to {job.out}: {full}"
    return outcome
