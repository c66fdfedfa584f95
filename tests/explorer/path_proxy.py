"""A small reverse proxy, as nginx with a ``location``: everything under a path goes to a server, without the path."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class PathProxy:
    """Takes the path off each request and sends it on; a connection is one request, or a WebSocket."""

    def __init__(self, path: str, strip: bool) -> None:
        self.path, self.strip, self.upstream = path, strip, 0
        self.outside: list[str] = []  # what was asked for elsewhere: there is nothing there
        self.loop = asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, _, rest = head.partition("\r\n")
            method, target, version = line.split(" ")
            if not target.startswith(self.path + "/"):
                self.outside.append(target)
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
                return
            lines = rest.split("\r\n")
            kept = [one for one in lines if not one.lower().startswith(("host:", "connection:"))]
            upgrade = any(one.lower().startswith("upgrade:") for one in lines)
            kept[:0] = [f"Host: 127.0.0.1:{self.upstream}", f"Connection: {'Upgrade' if upgrade else 'close'}"]
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.upstream)
            inside = target[len(self.path) :] if self.strip else target
            there.write("\r\n".join([f"{method} {inside} {version}", *kept]).encode("latin-1"))
            await asyncio.gather(_pump(reader, there), _pump(there_reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def end(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.server.close()
        self.loop.call_later(0.1, self.loop.stop)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@contextmanager
def proxy(path: str, strip: bool = True) -> Iterator[PathProxy]:
    """Runs in a thread until the block ends; set ``upstream`` to the server's port."""
    made = PathProxy(path, strip)
    thread = threading.Thread(target=made.loop.run_forever)
    thread.start()
    try:
        yield made
    finally:
        made.loop.call_soon_threadsafe(made.end)
        thread.join()
        made.loop.close()
