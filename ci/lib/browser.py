"""A headless Chromium that shows one page, with what the checks ask it.

Debian's chromium-driver and python3-selenium drive the browser; its protocol is used where
selenium has no call of its own: colours, sizes, keys, network, accessibility, pictures.
"""

import base64
import json
import pathlib

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """One window; use it in a `with` statement."""

    def __init__(self):
        options = Options()
        options.binary_location = "/usr/bin/chromium"
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.driver.set_script_timeout(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def protocol(self, command, **arguments):
        return self.driver.execute_cdp_cmd(command, arguments)

    def show(self, page, width, theme):
        """Loads a page in a window of this width, in the light or the dark theme."""
        self.protocol("Emulation.setEmulatedMedia", media="screen", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.protocol("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.driver.get_log("performance")
        self.driver.get(pathlib.Path(page).resolve().as_uri())
        self.settle()

    def settle(self):
        """Waits until the pictures have followed all changes."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => setTimeout(() => requestAnimationFrame("
            "() => setTimeout(done, 10)), 75));"
        )

    def ask(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def change(self, script, *arguments):
        """Runs a script that changes something, and waits."""
        result = self.ask(script, *arguments)
        self.settle()
        return result

    def key(self, key, modifiers=0):
        text = key if len(key) == 1 else ""
        code = KEYS.get(key) or ord(key.upper())
        down = {"type": "keyDown" if text or key == "Enter" else "rawKeyDown", "key": key, "windowsVirtualKeyCode": code}
        if text or key == "Enter":
            down["text"] = text or "\r"
        self.protocol("Input.dispatchKeyEvent", modifiers=modifiers, **down)
        self.protocol("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code, modifiers=modifiers)

    def complaints(self):
        """What the page wrote to the console, and what the browser refused to run or load."""
        said = [entry["message"] for entry in self.driver.get_log("browser")]
        # The checks read the pictures back, which the browser calls slow.
        return [message for message in said if "Multiple readback operations" not in message]

    def requests(self):
        """Addresses that the page asked for, besides itself."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [url for url in found if not url.startswith(("file:", "data:"))]

    def time_of(self, mark):
        """Milliseconds from the start of loading to a mark."""
        return self.ask("return performance.getEntriesByName(arguments[0])[0]?.startTime ?? null", mark)

    def hash_of(self, canvas):
        """A number that differs for different pictures, and the number of colours."""
        return self.ask(
            """
            const canvas = document.getElementById(arguments[0]);
            const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const pixels = new Uint32Array(image.data.buffer);
            const colours = new Set();
            let hash = 7;
            for (const pixel of pixels) { hash = (Math.imul(hash, 31) + pixel) | 0; colours.add(pixel); }
            return [hash, colours.size];
            """,
            canvas,
        )

    def screenshot(self, path):
        size = self.protocol("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 9000), "scale": 1}
        picture = self.protocol("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        pathlib.Path(path).write_bytes(base64.b64decode(picture["data"]))

    def printed(self):
        """The page as PDF."""
        return base64.b64decode(self.protocol("Page.printToPDF")["data"])

    def names(self):
        """Role and name of all controls, as a screen reader hears them."""
        self.protocol("Accessibility.enable")
        tree = self.protocol("Accessibility.getFullAXTree")["nodes"]
        self.protocol("Accessibility.disable")
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree
            if not node.get("ignored") and "role" in node
        ]
