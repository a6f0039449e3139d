"""Chromium without a window, driven by its own protocol (https://chromedevtools.github.io/devtools-protocol)."""

import asyncio
import json
import shutil
import time
from contextlib import asynccontextmanager

import aiohttp

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """A page. What it logs, throws and asks for is kept."""

    def __init__(self, socket):
        self.socket = socket
        self.errors, self.urls, self.asked = [], [], []
        self.last = 0

    async def __call__(self, method, **parameters):
        """Carry out a command."""
        self.last += 1
        await self.socket.send_json({"id": self.last, "method": method, "params": parameters})
        wanted = self.last
        while (told := json.loads((await self.socket.receive()).data)).get("id") != wanted:
            await self.hear(told)
        assert "error" not in told, told
        return told["result"]

    async def hear(self, told):
        method, given = told.get("method"), told.get("params")
        if method == "Network.requestWillBeSent":
            self.urls.append(given["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.asked.append(given["message"])
            self.last += 1
            await self.socket.send_json({"id": self.last, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}})
        elif method == "Runtime.exceptionThrown":
            self.errors.append(given["exceptionDetails"])

    async def value(self, expression):
        """What an expression of JavaScript is."""
        found = await self("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression, text=None):
        """Wait until an expression is true, or is a text that has another one in it."""
        end = time.monotonic() + 60
        while not (found := await self.value(expression)) or (text is not None and text not in found):
            assert time.monotonic() < end, (expression, text, found, self.errors)
            await asyncio.sleep(0.01)
        return found

    async def click(self, selector):
        """Press what is found by a CSS selector, once it is visible."""
        found = f"document.querySelector({json.dumps(selector)})"
        await self.until(f"!!{found} && {found}.checkVisibility()")
        await self.value(f"{found}.click()")

    async def write(self, selector, text):
        """Write into a field."""
        await self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        await self("Input.insertText", text=text)

    async def is_seen(self, selector):
        """Whether it is visible."""
        return await self.value(f"document.querySelector({json.dumps(selector)}).checkVisibility()")

    async def look_like(self, width, height, scheme):
        """The size of the window, and `light` or `dark`."""
        await self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        await self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@asynccontextmanager
async def opened(url, folder, **headers):
    """A page that is open; `headers` go with each request."""
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={folder}",
        "about:blank", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE)
    try:
        while b"DevTools listening on" not in (line := await process.stderr.readline()):
            assert line, "chromium has ended"
        place = line.decode().split()[-1].split("/")[2]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{place}/json") as answer:
                [target] = [one for one in await answer.json() if one["type"] == "page"]
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                for domain in ("Page", "Runtime", "Network"):
                    await page(f"{domain}.enable")
                await page("Network.setExtraHTTPHeaders", headers=headers)
                await page("Page.navigate", url=url)
                yield page
                assert page.errors == []
    finally:
        process.kill()
        await process.communicate()
