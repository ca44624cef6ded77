"""Chromium without a window, as a process of its own, told over a pipe what to show (the DevTools protocol, one JSON message at a time).

It draws pages of ours that load nothing, so it has no network, and a profile that is deleted with it. It ends with this object, or when
this process is gone, however that ended: then the pipe is closed. Whatever it does (not start, hang, die), a call ends within its
time in one sentence, and the browser with all its processes has ended too.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.core.text import harmless
from tasks.runtime.process import end_group

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0  # for a call; the first also waits for the start
LONGEST = 60  # characters of the folder below which Chromium makes a socket, whose whole path may have 107
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # of use against pages of others; in containers it does not start with one
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-breakpad",  # its reporter of crashes would outlive it
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--force-color-profile=srgb",
    "--no-first-run",
    "--remote-debugging-pipe",
)
# A browser reads from descriptor 3 and writes to 4: this puts them there and becomes the browser.
_START = "import fcntl, os, sys; a, b = (fcntl.fcntl(int(x), fcntl.F_DUPFD, 10) for x in sys.argv[1:3]); os.dup2(a, 3); os.dup2(b, 4); os.execv(sys.argv[3], sys.argv[3:])"


def program() -> str | None:
    """The path of the browser that is installed here; None for none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def version(path: str) -> str:
    """What `--version` of a browser says, the numbers alone. Raises UserError where it says nothing within SECONDS."""
    try:
        told = subprocess.run([path, "--version"], capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        match = re.search(rb"\d+(\.\d+)+", told.stdout)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise UserError(f"the browser {path} does not say its version ({type(e).__name__}): install another") from None
    if match is None:
        raise UserError(f"the browser {path} does not say its version: install another, e.g. Chromium")
    return match[0].decode()


class Browser:
    """A running browser with one page. Raises UserError where it does not start.

    path: of the program. seconds: for each call
    """

    def __init__(self, path: str, seconds: float = SECONDS) -> None:
        self.path, self.seconds, self._said, self._n, self._session = path, seconds, b"", 0, ""
        self._size: tuple[int, int, float] | None = None
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="espalier-browser-"))
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        os.set_blocking(self._out, False)
        command = [path, *OPTIONS, f"--user-data-dir={self._folder}", "about:blank"]
        short = {"TMPDIR": "/tmp"} if len(tempfile.gettempdir()) > LONGEST else {}
        try:
            with (self._folder / "stderr").open("wb") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _START, str(theirs_in), str(theirs_out), *command],
                    pass_fds=(theirs_in, theirs_out),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    env={**os.environ, **short},
                    start_new_session=True,
                )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        atexit.register(self.close)
        try:
            targets = self.call("Target.getTargets")["targetInfos"]
            target = next(t["targetId"] for t in targets if t["type"] == "page")
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # without a window nothing has the focus
        except (KeyError, StopIteration) as e:
            self.close()
            raise UserError(f"the browser {path} opens no page ({e!r}): install another") from None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command of the DevTools protocol. Raises UserError where there is none within the time; the browser has
        ended then."""
        self._n += 1
        request = {"id": self._n, "method": method, "params": params}
        if self._session:
            request["sessionId"] = self._session
        until = time.monotonic() + self.seconds
        try:
            self._send(json.dumps(request).encode() + b"\0", until)
            while (answer := json.loads(self._message(until))).get("id") != self._n:
                pass
            if "error" in answer:
                raise ValueError(f"{answer['error'].get('message', answer['error'])}")
            return answer["result"]
        except BaseException as e:
            why = self._why(e)
            self.close()
            if isinstance(e, OSError | ValueError | EOFError | KeyError | AttributeError):
                did = f"did not answer {method}" if self._session else "did not start"
                raise UserError(
                    f"the browser {self.path} {did}: {why}; run again, or see whether `{self.path} --headless=new --no-sandbox --dump-dom "
                    "about:blank` works here"
                ) from None
            raise

    def _why(self, e: BaseException) -> str:
        if isinstance(e, TimeoutError):
            return f"it said nothing for {self.seconds:g} s and was ended"
        if isinstance(e, EOFError | BrokenPipeError):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                code = self._process.wait(1)
                lines = (self._folder / "stderr").read_bytes()[-4000:].decode(errors="replace").split("\n")
                last = next((x for x in reversed(lines) if x.strip()), "")
                return f"it ended with code {code}" + (f" ({harmless(last)[:200]})" if last else "")
        return harmless(str(e))[:200] or type(e).__name__

    def _send(self, data: bytes, until: float) -> None:
        while data:
            if not select.select([], [self._out], [], max(0.0, until - time.monotonic()))[1]:
                raise TimeoutError
            data = data[os.write(self._out, data) :]

    def _message(self, until: float) -> bytes:
        while b"\0" not in self._said:
            if not select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            more = os.read(self._in, 1 << 20)
            if not more:
                raise EOFError
            self._said += more
        one, _, self._said = self._said.partition(b"\0")
        return one

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page. Raises UserError as `call`, and for a script that throws."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in told:
            raise UserError(f"a script of a page failed: {harmless(json.dumps(told['exceptionDetails']))[:300]}")
        return told["result"].get("value")

    def show(self, html: str, width: int, height: int, scale: float = 1) -> None:
        """Show a document in a window of so many CSS pixels, each of scale x scale pixels."""
        if self._size != (width, height, scale):
            self.call(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
            )
            self._size = width, height, scale
        self.run(f"document.open(); document.write({json.dumps(html)}); document.close()")

    def picture(self) -> bytes:
        """A PNG of what the window shows."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", optimizeForSpeed=True)["data"])

    def close(self) -> None:
        """End the browser and all its processes; a second call does nothing, nor does one of a forked process."""
        if self._owner != os.getpid():
            return
        self._owner = 0
        atexit.unregister(self.close)
        os.close(self._out)
        end_group(self._process.pid, grace=0)  # at once: nothing of it is kept, so it need not end in order
        self._process.wait()
        os.close(self._in)
        shutil.rmtree(self._folder, ignore_errors=True)
