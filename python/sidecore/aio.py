"""Sockets for coroutines of asyncio. Their event loop watches the descriptor of the engine's event queue; no thread is involved.

>>> async def main():
...     async with await sidecore.aio.connect(("10.77.0.1", 7)) as stream:
...         await stream.sendall(b"hello")
...         print(await stream.recv(100))
"""

import asyncio
from typing import Any, Optional, Tuple, Union

from . import _dusi as dusi
from ._base import Base, BaseStream, known, opened
from ._dusi import Address
from ._endpoint import Endpoint
from ._link import Link, default_link
from ._sockets import Buffer


class _Socket(Base):
    async def _ask(self, call: str, *arguments: Any) -> Tuple[int, Optional[Address]]:
        cookie = self._post(call, *arguments)
        return await self._link.until(lambda: self._endpoint.answer(cookie), self._endpoint)

    async def getsockname(self) -> Address:
        """The own address."""
        endpoint = self._endpoint
        if endpoint.local is None:
            endpoint.local = (await self._ask("Get_Option", dusi.OPT_LOCAL_ADDRESS))[1]
        return known(endpoint.local, "it has no address")

    async def __aenter__(self: Any) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Stream(_Socket, BaseStream):
    """A TCP connection. :func:`connect` and :meth:`Listener.accept` make them. A cancelled coroutine leaves it as it is."""

    async def recv(self, size: int) -> bytes:
        """Receives up to ``size`` bytes, at least one; none at the end."""
        room = bytearray(max(0, size))
        n = await self.recv_into(room)
        return bytes(room[:n])

    async def recv_into(self, room: Union[bytearray, memoryview]) -> int:
        """Receives into a buffer: how many bytes; 0 at the end."""
        view = memoryview(room).cast("B")
        return await self._link.until(lambda: self._endpoint.read(view), self._endpoint)

    async def readexactly(self, size: int) -> bytes:
        """Receives ``size`` bytes; asyncio.IncompleteReadError when the peer ends before."""
        room, done = bytearray(size), 0
        while done < size:
            n = await self.recv_into(memoryview(room)[done:])
            if n == 0:
                raise asyncio.IncompleteReadError(bytes(room[:done]), size)
            done += n
        return bytes(room)

    async def send(self, data: Buffer) -> int:
        """Sends what there is room for, at least one byte: how many. They are copied, so that ``data`` may change."""
        view = memoryview(data).cast("B")
        return await self._link.until(lambda: self._endpoint.write(view), self._endpoint)

    async def sendall(self, data: Buffer) -> None:
        """Sends all of it."""
        view = memoryview(data).cast("B")
        while len(view):
            view = view[await self.send(view) :]

    async def set_nodelay(self, on: bool) -> None:
        """TCP_NODELAY: small segments do not wait for acknowledgements."""
        await self._ask("Set_Option", dusi.OPT_NODELAY, int(on), dusi.NOTIFY)


class Listener(_Socket):
    """Takes connections. :func:`listen` makes them. ``async for`` gives connections without end."""

    async def accept(self) -> Tuple[Stream, Address]:
        """Waits for a connection: it, and the peer's address."""
        stream = Stream(await self._link.until(self._endpoint.accept, self._endpoint))
        return stream, stream.getpeername()

    def __aiter__(self) -> "Listener":
        return self

    async def __anext__(self) -> Stream:
        return (await self.accept())[0]


async def connect(address: Address, *, link: Optional[Link] = None, source_address: Optional[Address] = None) -> Stream:
    """Connects to (host, port). A host should be a number: names are looked up by a call that blocks the loop.

    Raises:
        OSError: ConnectionRefusedError and so on, as errno says. asyncio.wait_for bounds the time.
    """
    endpoint = opened(link or default_link(), address, source_address)
    stream = Stream(endpoint)
    try:
        await endpoint.link.until(endpoint.is_connected, endpoint)
    except BaseException:
        stream.close()
        raise
    return stream


async def listen(address: Address, backlog: int = 128, *, link: Optional[Link] = None) -> Listener:
    """Listens at (host, port), of the engine's; port 0: any free one, which :meth:`Listener.getsockname` tells.

    Raises:
        OSError: EADDRINUSE, EADDRNOTAVAIL, EACCES and so on.
    """
    link = link or default_link()
    local = dusi.pack(address)
    with link.lock:
        listener = Listener(Endpoint(link))
    try:
        await listener._ask("Bind", local, len(local))
        listener._endpoint.local = (await listener._ask("Listen", backlog))[1]
    except BaseException:
        listener.close()
        raise
    return listener
