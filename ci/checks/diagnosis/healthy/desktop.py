"""Programs of a desktop: without a display, or on a virtual one."""

import subprocess

from programs.running import Start

from .table import healthy

# Starts a display, writes its number to a file, and becomes the program.
ON_DISPLAY = 'mkfifo told; Xvfb -screen 0 1280x800x24 -nolisten tcp -displayfd 3 3>told & read number <told; echo $number >number; DISPLAY=:$number exec "$@"'


def on_display(room, *command, inside=""):
    """Starts a program on a display of its own; it is ready when it has a window that is shown."""
    def shown():
        if not (room.path / "number").exists():
            return False
        number = (room.path / "number").read_text().strip()
        tree = subprocess.run(["xwininfo", "-display", f":{number}", "-root", "-tree"], capture_output=True, text=True).stdout
        return any("0x" in line and '": (' in line and "1x1+" not in line and "10x10+" not in line for line in tree.splitlines())
    return Start(["sh", "-c", ON_DISPLAY, "sh", *command], until=shown, inside=inside, env=home(room))


def home(room):
    return {"HOME": str(room.path), "XDG_CONFIG_HOME": str(room.path / "config"), "XDG_CACHE_HOME": str(room.path / "cache"),
            "XDG_RUNTIME_DIR": str(room.path), "NO_AT_BRIDGE": "1", "GSETTINGS_BACKEND": "memory"}


DISPLAY = ("xvfb", "x11-utils")


@healthy("display-server", "xvfb")
def _(_room):
    return Start(["Xvfb", "-displayfd", "1", "-screen", "0", "1280x800x24", "-nolisten", "tcp"], r"^\d+$")


@healthy("terminal", "xterm", *DISPLAY)
def _(room):
    return on_display(room, "xterm", inside="xterm")


@healthy("editor", "mousepad", *DISPLAY)
def _(room):
    return on_display(room, "mousepad", inside="mousepad")


@healthy("document-viewer", "evince", *DISPLAY)
def _(room):
    return on_display(room, "evince", inside="evince")


@healthy("drawing", "inkscape", *DISPLAY)
def _(room):
    return on_display(room, "inkscape", inside="inkscape")


@healthy("painting", "gimp", *DISPLAY)
def _(room):
    return on_display(room, "gimp", "--no-splash", inside="gimp")


@healthy("clock", "x11-apps", *DISPLAY)
def _(room):
    return on_display(room, "xclock", inside="xclock")


@healthy("video-player", "mpv", *DISPLAY)
def _(room):
    return on_display(room, "mpv", "--no-config", "--vo=x11", "--ao=null", "--msg-level=all=error", "av://lavfi:testsrc=size=1280x720", inside="mpv")


@healthy("office", "libreoffice-calc", *DISPLAY)
def _(room):
    return on_display(room, "soffice", "--norestore", "--nologo", "--calc", inside="soffice.bin")


def chromium(room):
    return ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={room.path}/profile", "--remote-debugging-port=0", "about:blank"]


@healthy("browser", "chromium")
def _(room):
    return Start(chromium(room), "DevTools listening", env=home(room))


@healthy("browser-page", "chromium")
def _(room):
    return Start(chromium(room), "DevTools listening", env=home(room), holds="--type=renderer")


@healthy("browser-other", "firefox-esr")
def _(room):
    return Start(["firefox-esr", "--headless", "--no-remote", "--profile", room.path, "--remote-debugging-port", "0", "about:blank"],
                 "WebDriver BiDi listening", env=home(room), inside="firefox-esr")


@healthy("browser-other-page", "firefox-esr")
def _(room):
    return Start(["firefox-esr", "--headless", "--no-remote", "--profile", room.path, "--remote-debugging-port", "0", "about:blank"],
                 "WebDriver BiDi listening", env=home(room), inside="Web Content")


@healthy("emacs", "emacs-nox")
def _(room):
    return Start(["emacs", "--fg-daemon=here"], "Starting Emacs daemon|started", env=home(room))


@healthy("vim", "vim-nox")
def _(room):
    return Start(["vim", "-u", "NONE", "-es"], "ready", feed=":set verbose=0\n:echo 'x'\n:!echo ready\n", env=home(room))
