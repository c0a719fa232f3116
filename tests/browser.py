"""Chromium without a window, for tests of pages: what it loads, what it complains of, how it lays out and prints.

It is driven by the DevTools protocol over a pipe: JSON messages that end with a zero byte; the browser
reads them from file descriptor 3 and writes to 4.  Nothing is needed but the browser.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
EXECUTABLE = next(filter(None, map(shutil.which, NAMES)), None)
MISSING = f"no browser: none of {', '.join(NAMES)} is installed"
PATIENCE = 120.0  # seconds for one answer; a browser on a busy machine starts slowly

FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip

# what stands between: the pipe's ends get their numbers, whatever they were
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A running browser; use it in a `with` statement.  `home` is an empty folder for its files."""

    def __init__(self, home: Path) -> None:
        assert EXECUTABLE, MISSING
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        flags = [*FLAGS, f"--user-data-dir={home}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            flags.append("--no-sandbox")  # there is none for root
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", START, str(theirs_in), str(theirs_out), EXECUTABLE, *flags],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that its children can be ended with it
            env={**os.environ, "HOME": str(home)},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.send("Browser.close")
            self._process.wait(10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            pass
        finally:
            with suppress(ProcessLookupError):  # all of them are gone
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            os.close(self._to)
            os.close(self._from)

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; its result.  Events that come meanwhile are kept."""
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._receive(deadline, method)
            if answer.get("id") == number:
                break
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait(self, method: str, session: str) -> None:
        """Until this event has come."""
        deadline = time.monotonic() + PATIENCE
        while not any(e["method"] == method and e.get("sessionId") == session for e in self.events):
            self._receive(deadline, method)

    def _receive(self, deadline: float, waiting_for: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise RuntimeError(f"no answer from the browser within {PATIENCE:g} s: {waiting_for}")
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise RuntimeError(f"the browser ended: {waiting_for}")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        if "id" not in message:
            self.events.append(message)
        return message

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False, media: str = "") -> Page:
        """Load a page at this width of the window; `media` may be "print"."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        mobile = width < 600
        page.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", media=media, features=[scheme])
        trouble = page.send("Page.navigate", url=url).get("errorText")
        if trouble:
            raise RuntimeError(f"{url}: {trouble}")
        self.wait("Page.loadEventFired", session)
        return page


class Page:
    """A loaded page."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """What a JavaScript expression gives, as plain data."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", expression))
        return answer["result"].get("value")

    def _events(self, method: str) -> list[dict[str, Any]]:
        self.evaluate("0")  # what was said before this is here now
        return [
            event["params"]
            for event in self._browser.events
            if event["method"] == method and event.get("sessionId") == self._session
        ]

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and what the browser itself complains of."""
        console = [
            " ".join(str(part.get("value", part.get("description"))) for part in call["args"])
            for call in self._events("Runtime.consoleAPICalled")
            if call["type"] in ("error", "warning", "assert")
        ]
        thrown = [event["exceptionDetails"]["text"] for event in self._events("Runtime.exceptionThrown")]
        entries = [event["entry"] for event in self._events("Log.entryAdded")]
        return console + thrown + [entry["text"] for entry in entries if entry["level"] in ("error", "warning")]

    @property
    def requests(self) -> list[str]:
        """Addresses of all that was asked for, what lies inside the page (data:) excepted."""
        sent = [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]
        return [url for url in sent if not url.startswith("data:")]

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def pdf(self) -> bytes:
        """The page as it is printed, on the paper that its style sheet asks for."""
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def close(self) -> None:
        self._browser.send("Target.closeTarget", targetId=self._target)
