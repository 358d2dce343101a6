"""Chromium without a window, driven over a pipe by its own DevTools protocol: no package, no port."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--no-sandbox",
           "--disable-background-networking", "--disable-component-update", "--disable-sync", "--use-fake-device-for-media-stream",
           "--use-fake-ui-for-media-stream", "--autoplay-policy=no-user-gesture-required", "--force-color-profile=srgb")


def installed():
    """Its path, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """A tab."""

    def __init__(self, to, back):
        self._to, self._back, self._count, self._rest, self.events = to, back, 0, b"", []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.send(f"{domain}.enable")

    _session = None

    def send(self, method, **given):
        """The result of a command; what happens meanwhile is kept in `events`."""
        self._count += 1
        command = {"id": self._count, "method": method, "params": given} | ({"sessionId": self._session} if self._session else {})
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._count:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def _next(self):
        while b"\0" not in self._rest:
            data = os.read(self._back, 1 << 16)
            assert data, "the browser has ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def run(self, script):
        """The value of a script, awaited."""
        found = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script, seconds=120):
        """Until a script's value is truthy; returns it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.run(script):
                return value
            time.sleep(0.05)
        raise AssertionError(f"never: {script}\n{self.run('document.body.innerText')}")

    def open(self, address):
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && !!document.querySelector('#form *')")

    def choose(self, *paths, into="#file"):
        """Files, as a person chooses them."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=into)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def picture(self, path, *, width=900, height=1000, dark=False):
        """The page as a PNG."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def problems(self):
        """What the browser complained of, and the addresses beyond the page's own that were asked for."""
        return [one["params"] for one in self.events if one.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")]

    def asked(self):
        """The addresses of all requests."""
        return [one["params"]["request"]["url"] for one in self.events if one.get("method") == "Network.requestWillBeSent"]


@contextmanager
def browser():
    (theirs_in, to), (back, theirs_out) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        process = subprocess.Popen(["bash", "-c", command, "bash", installed(), *OPTIONS, f"--user-data-dir={profile}"],
                                   pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Page(to, back)
        finally:
            process.kill()
            process.wait()
            os.close(to)
            os.close(back)
