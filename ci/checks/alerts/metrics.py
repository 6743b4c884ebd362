"""Runs a Prometheus server that collects `vmarea top --openmetrics` from two machines, with our rules and alerts.

Each "machine" is an HTTP server on loopback that runs the command for each request. One process with many mappings
runs meanwhile; the server must report it by an alert, and every query of the dashboard must have a result.

usage: ci/checks/alerts/metrics.py VMAREA
"""

import contextlib
import http.server
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from alerts import ALERTS, RULES, queries

# The only query that needs hours of observation.
NEEDS_HOURS = "ratio_of_limit_in_25h"
# Maps pages with alternating protections until the process has 75 % of the mappings that it may have.
MANY = """
import mmap, os, sys
most = int(open("/proc/sys/vm/max_map_count").read()) * 3 // 4
memory = mmap.mmap(-1, most * mmap.PAGESIZE, prot=mmap.PROT_READ)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
start = ctypes.c_size_t.from_address(id(memory) + object.__basicsize__).value
for page in range(0, most, 2):
    if libc.mprotect(ctypes.c_void_p(start + page * mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0):
        sys.exit(os.strerror(ctypes.get_errno()))
print("ready", flush=True)
sys.stdin.read()
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def machine(vmarea):
    """Starts a server that answers each request with a new sample."""

    class Sample(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = subprocess.run([vmarea, "top", "--once", "--openmetrics", "-"], check=True, capture_output=True)
            self.send_response(200)
            self.send_header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
            self.end_headers()
            # A server that stops does not wait for the answer.
            with contextlib.suppress(BrokenPipeError):
                self.wfile.write(text.stdout)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sample)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def configure(folder, ports):
    """Writes the configuration; the rules are ours, but are evaluated every second."""
    for path in (RULES, ALERTS):
        text = pathlib.Path(path).read_text(encoding="utf-8")
        quick = re.sub(r"for: 5m", "for: 1s", re.sub(r"interval: 1m", "interval: 1s", text))
        (folder / pathlib.Path(path).name).write_text(quick, encoding="utf-8")
    config = {
        "global": {"scrape_interval": "2s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml", "alerts.yml"],
        "scrape_configs": [
            {"job_name": "node", "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")


def ask(port, query):
    """Returns the result of a query, as Grafana would ask for it."""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]["result"]


def wait_for(port, query, server):
    """Asks until there is a result; fails after a minute, or if the server has ended."""
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        with contextlib.suppress(OSError):
            if found := ask(port, query):
                return found
        time.sleep(0.5)
    sys.exit(f"metrics: no result within a minute: {query}")


def main():
    vmarea = sys.argv[1]
    port = free_port()
    many = subprocess.Popen([sys.executable, "-c", MANY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with tempfile.TemporaryDirectory() as name, many:
        folder = pathlib.Path(name)
        if many.stdout.readline() != "ready\n":
            sys.exit("metrics: the process with many mappings has failed")
        configure(folder, [machine(vmarea), machine(vmarea)])
        log = open(folder / "log", "w+", encoding="utf-8")
        server = subprocess.Popen(
            ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
            + [f"--web.listen-address=127.0.0.1:{port}"],
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            alert = f'ALERTS{{alertname="ProcessNearMaxMapCount", alertstate="firing", pid="{many.pid}"}}'
            wait_for(port, f"count({alert}) == 2", server)
            for title, query in queries():
                if not ask(port, query) and NEEDS_HOURS not in query:
                    sys.exit(f"metrics: the panel “{title}” is empty: {query}")
            near = ask(port, "vmarea:processes_near_limit:count")[0]["value"][1]
        finally:
            server.terminate()
            server.wait(20)
            many.stdin.close()
    print(f"metrics: ok, the alert of both machines, {near} processes near the limit, all panels have data")


if __name__ == "__main__":
    main()
