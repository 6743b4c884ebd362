"""The engine `ray`: a Ray Data pipeline with one task for each batch.

The tasks store their rows themselves; only counts flow through Ray. Ray repeats tasks whose worker or node has died.
A batch that is lost all the same, because every attempt ends its worker, becomes rows at the end.
"""

import contextlib
import json
import logging
import os
import socket
import sys
import threading
from dataclasses import asdict

from . import binary, local, plan, storage, task

# Attempts after the first one.
RETRIES = 3
# Seconds until a process that cannot reach the cluster's head any more gives up.
UNREACHABLE = "20"


class Lost(ConnectionError):
    """The cluster has gone away; the text is for the user."""


def connect(address, seconds):
    """Connects to a cluster: the given one, that of RAY_ADDRESS, one on this machine, or else a new one.

    Raises `Refused`, or ends this process, if there is none or if it does not answer within so many seconds.
    """
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", UNREACHABLE)
    address = address or os.environ.get("RAY_ADDRESS")
    name = address or "the default address"
    probe(address, seconds)
    import ray

    with limit(seconds, f"no Ray cluster at {name}: no answer within {seconds} s (see --connect-timeout)"):
        try:
            ray.init(
                address=address, log_to_driver=False, logging_level="error", include_dashboard=None if address else False
            )
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise plan.Refused(f"no Ray cluster at {name}: {first_line(error)}{advice(error)}") from error
    return ray


def probe(address, seconds):
    """Checks that something accepts connections at HOST:PORT; Ray itself would wait for minutes, or for ever."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or "/" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError as error:
        raise plan.Refused(f"no Ray cluster at {address}: {error}") from error


@contextlib.contextmanager
def limit(seconds, message):
    """Ends this process with a message if the body takes longer; Ray's calls cannot be interrupted."""

    def give_up():
        print(f"vmarea-sweep: {message}", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def advice(error):
    """Returns what to do if the cluster wants a token: Ray uses none for an explicit address by itself."""
    if "oken" not in str(error) and "UNAUTHENTICATED" not in str(error).upper():
        return ""
    return " (set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the cluster's token)"


def run(job, batches, address, seconds):
    """Yields the outcome of each batch, in any order. Raises `Lost` if the cluster goes away."""
    ray = connect(address, seconds)
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    try:
        yield from of_cluster(ray, job, batches)
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise Lost(f"the Ray cluster has ended the sweep: {first_line(error)}") from error
    finally:
        ray.shutdown()


def of_cluster(ray, job, batches):
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Batches without an outcome are found below.
    context.max_errored_blocks = -1
    items = [{"batch": encode(batch)} for batch in batches]
    data = ray.data.from_items(items, override_num_blocks=len(items))
    # Ray would otherwise import these modules from the folder of this process, which other machines do not have.
    results = data.map_batches(
        in_worker, batch_size=None, fn_args=(encode_job(job),), num_cpus=1, max_retries=RETRIES
    )
    unseen = {plan.part_of(job, batch): batch for batch in batches}
    for block in results.iter_batches(batch_size=None, prefetch_batches=0):
        for text in block["outcome"]:
            outcome = json.loads(text)
            unseen.pop(outcome.pop("part"), None)
            yield task.Outcome(**outcome)
    system, _ = storage.resolve(job.out)
    for path, batch in unseen.items():
        if storage.exists(system, path):
            yield task.run(job, batch)
        else:
            for trace in batch:
                yield local.died(job, trace)


def in_worker(block, text):
    """Runs the batches of a block in a worker of the cluster."""
    job = plan.Job(**{**json.loads(text), "policies": tuple(json.loads(text)["policies"])})
    if (found := binary.version()) != job.version:
        raise RuntimeError(f"this node has vmarea {found}, the sweep {job.version}: install the same version")
    outcomes = []
    for batch in block["batch"]:
        traces = [plan.Trace(*fields) for fields in json.loads(batch)]
        outcomes.append(json.dumps({"part": plan.part_of(job, traces), **task.run(job, traces).as_dict()}))
    return {"outcome": outcomes}


def encode(batch):
    return json.dumps([[trace.path, trace.size, trace.modified_ns, trace.key] for trace in batch])


def encode_job(job):
    return json.dumps(asdict(job))


def first_line(error):
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
