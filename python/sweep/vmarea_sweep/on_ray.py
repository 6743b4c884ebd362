"""The engine `ray`: a Ray Data pipeline with one task for each batch.

The tasks store their rows themselves; only counts flow through Ray. Ray repeats tasks whose worker or node has died.
A batch that is lost all the same, because every attempt ends its worker, becomes rows at the end.

Ray ends the process that is connected to a cluster if the cluster goes away, and its attempts to connect cannot be
interrupted. So a process of its own is connected, and sends what it gets through a pipe (`run`, `drive`).
"""

import json
import logging
import multiprocessing
import os
import socket
from dataclasses import asdict

from . import binary, local, plan, storage, task

# Attempts after the first one.
RETRIES = 3
# Seconds until a process that cannot reach the cluster's head any more gives up.
UNREACHABLE = "20"
# Seconds within which a process may take leave of the cluster.
SHUTDOWN = 20
# What a message through the pipe is.
CONNECTED, OUTCOME, REFUSED, LOST, DONE = "connected", "outcome", "refused", "lost", "done"


class Lost(ConnectionError):
    """The cluster has gone away; the text is for the user."""


def run(job, batches, address, seconds):
    """Yields the outcome of each batch, in any order.

    Raises `Refused` if there is no cluster or if it does not answer within so many seconds, and `Lost` if it goes away.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    probe(address, seconds)
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    driver = context.Process(target=drive, args=(job, batches, address, send), daemon=True)
    driver.start()
    send.close()
    try:
        if not receive.poll(seconds):
            raise plan.Refused(
                f"no Ray cluster at {name_of(address)}: no answer within {seconds} s (see --connect-timeout)"
            )
        yield from received(receive)
        # It takes the cluster down, if it has started one.
        driver.join(SHUTDOWN)
    finally:
        end(driver)


def end(driver):
    """Ends a process, if need be without letting it take leave of the cluster."""
    driver.terminate()
    driver.join(SHUTDOWN)
    driver.kill()
    driver.join()


def received(receive):
    """Yields the outcomes from a pipe, until the message that it is done."""
    while True:
        try:
            kind, content = receive.recv()
        except EOFError:
            raise Lost("the Ray cluster has gone away") from None
        if kind == OUTCOME:
            yield content
        elif kind == REFUSED:
            raise plan.Refused(content)
        elif kind == LOST:
            raise Lost(content)
        elif kind == DONE:
            return


def probe(address, seconds):
    """Checks that something accepts connections at HOST:PORT; Ray itself would try for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or "/" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError as error:
        raise plan.Refused(f"no Ray cluster at {address}: {error}") from error


def name_of(address):
    return address or "the default address"


def drive(job, batches, address, send):
    """Runs in a process of its own: connects to the cluster and sends the outcome of each batch."""
    # Ctrl-C is for the process that waits for this one.
    local.begin()
    # Ray writes the reasons of its end here, where nobody looks for them; they are in its own log, too.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        ray = connect(address)
    except plan.Refused as refused:
        send.send((REFUSED, str(refused)))
        return
    send.send((CONNECTED, None))
    try:
        for outcome in of_cluster(ray, job, batches):
            send.send((OUTCOME, outcome))
        send.send((DONE, None))
    except (ray.exceptions.RayError, ConnectionError) as error:
        send.send((LOST, f"the Ray cluster has ended the sweep: {first_line(error)}"))
    finally:
        ray.shutdown()


def connect(address):
    """Connects to a cluster: the given one, one on this machine, or else a new one. Raises `Refused`."""
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", UNREACHABLE)
    import ray

    logging.getLogger("ray").setLevel(logging.CRITICAL)
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    dashboard = None if address else False
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", include_dashboard=dashboard)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        words = f"no Ray cluster at {name_of(address)}: {first_line(error)}{advice(error)}"
        raise plan.Refused(words) from error
    return ray


def advice(error):
    """Returns what to do if the cluster wants a token: Ray looks for none if an address is given."""
    if "token" not in str(error).lower() and "unauthenticated" not in str(error).lower():
        return ""
    return " (set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the cluster's token)"


def of_cluster(ray, job, batches):
    """Yields the outcome of each batch."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Batches without an outcome are found below.
    context.max_errored_blocks = -1
    items = [{"batch": encode(batch)} for batch in batches]
    data = ray.data.from_items(items, override_num_blocks=len(items))
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
