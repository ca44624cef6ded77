"""A real browser without a window, driven over the DevTools protocol: open a page, wait until it shows something, take
its picture."""

import base64
import contextlib
import json
import subprocess
import time
import urllib.request

from tasks.models.browser import program

BROWSER = program()

PATIENCE = 300  # seconds: a bound on waiting that only a failure reaches


class Leaving(AssertionError):
    """The page went elsewhere while it was asked."""


class Page:
    def __init__(self, socket):
        self.socket, self.n = socket, 0

    def call(self, method, **params):
        self.n += 1
        self.socket.send(json.dumps({"id": self.n, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv(timeout=240))
            if answer.get("id") == self.n:
                if answer.get("error", {}).get("code") == -32000:
                    raise Leaving(answer)
                assert "error" not in answer, answer
                return answer["result"]

    def run(self, script):
        """The value of a JavaScript expression in the page."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def open(self, url, *, until, seconds=PATIENCE):
        """Go to the page and wait until the expression `until` is true there."""
        self.call("Page.navigate", url=url)
        self.wait(until, seconds)

    def wait(self, until, seconds=PATIENCE):
        for _ in range(seconds * 5):
            with contextlib.suppress(Leaving):  # a page that is just leaving shows nothing yet: the next one is asked
                if self.run(f"!!({until})"):
                    return
            time.sleep(0.2)
        raise AssertionError(f"never true: {until}; the page says: {self.text()[:1500]}")

    def text(self):
        return self.run("document.body.innerText") or ""

    def size(self, width, height, *, dark=False):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def page(folder, width=1400, height=900):
    """An open page of a fresh browser whose profile lies in `folder`; the browser ends with it."""
    from websockets.sync.client import connect

    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--remote-debugging-port=0",
    ]
    child = subprocess.Popen(
        [*command, f"--user-data-dir={folder}/profile", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with connect(_first_page(folder / "profile" / "DevToolsActivePort"), max_size=None) as socket:
            shown = Page(socket)
            shown.size(width, height)
            yield shown
    finally:
        child.terminate()
        child.wait(300)


def _first_page(active):
    """The address of a browser's first page, once it has one: the browser writes its port first."""
    for _ in range(PATIENCE * 10):
        if active.exists() and len(lines := active.read_text().splitlines()) == 2:
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=PATIENCE) as answer:
                for target in json.load(answer):
                    if target["type"] == "page":
                        return target["webSocketDebuggerUrl"]
        time.sleep(0.1)
    raise AssertionError(f"the browser has no page: {active}")
