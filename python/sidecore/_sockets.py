"""Blocking sockets: those of the socket module, on an engine."""

import warnings
from typing import Any, Optional, Tuple, Union

from . import _dusi as dusi
from ._dusi import Address
from ._endpoint import Endpoint
from ._link import Link, default_link

Buffer = Union[bytes, bytearray, memoryview]


def opened(link: Link, address: Address, source: Optional[Address]) -> Endpoint:
    """An endpoint that begins to connect."""
    to, local = dusi.pack(address), dusi.pack(source) if source else None
    with link.lock:
        endpoint = Endpoint(link)
        try:
            endpoint.connect(to, local)
        except BaseException:
            endpoint.close()
            raise
        endpoint.peer = dusi.unpack(to)
        return endpoint


class _Socket:
    """What streams and listeners share. Usable as a context manager, which closes it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._link = endpoint.link
        self._timeout: Optional[float] = None

    def settimeout(self, timeout: Optional[float]) -> None:
        """How many seconds a call waits at most before it raises TimeoutError; None: any time."""
        self._timeout = timeout

    def gettimeout(self) -> Optional[float]:
        """What :meth:`settimeout` has set."""
        return self._timeout

    def _ask(self, call: str, *arguments: Any) -> Tuple[int, Optional[Address]]:
        with self._link.lock:
            cookie = self._endpoint.ask(call, *arguments)
        return self._link.wait(lambda: self._endpoint.answer(cookie), self._timeout)

    def getsockname(self) -> Address:
        """The own address."""
        endpoint = self._endpoint
        if endpoint.local is None:
            endpoint.local = self._ask("Get_Option", dusi.OPT_LOCAL_ADDRESS)[1]
        if endpoint.local is None:
            raise OSError(107, "it has no address")
        return endpoint.local

    def __del__(self) -> None:
        endpoint = getattr(self, "_endpoint", None)
        if endpoint is not None and not endpoint.is_closed():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            # At a moment when nobody is in the midst of something.
            endpoint.link.orphans.append(endpoint)

    def close(self) -> None:
        """Closes it. What was sent still goes out (:meth:`Link.flush` waits for it). Safe to call twice."""
        with self._link.lock:
            self._endpoint.close()

    def __enter__(self: Any) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Stream(_Socket):
    """A TCP connection. :func:`connect` and :meth:`Listener.accept` make them."""

    def recv(self, size: int) -> bytes:
        """Receives up to ``size`` bytes, at least one; none at the end."""
        room = bytearray(max(0, size))
        n = self.recv_into(room)
        return bytes(room[:n])

    def recv_into(self, room: Union[bytearray, memoryview]) -> int:
        """Receives into a buffer: how many bytes; 0 at the end."""
        view = memoryview(room).cast("B")
        return self._link.wait(lambda: self._endpoint.read(view), self._timeout)

    def send(self, data: Buffer) -> int:
        """Sends what there is room for, at least one byte: how many. They are copied, so that ``data`` may change."""
        view = memoryview(data).cast("B")
        return self._link.wait(lambda: self._endpoint.write(view), self._timeout)

    def sendall(self, data: Buffer) -> None:
        """Sends all of it."""
        view = memoryview(data).cast("B")
        while len(view):
            view = view[self.send(view) :]

    def shutdown(self, how: int) -> None:
        """Ends directions: socket.SHUT_RD, SHUT_WR, SHUT_RDWR."""
        with self._link.lock:
            self._endpoint.shutdown(how)
            self._link.changed(self._endpoint)

    def set_nodelay(self, on: bool) -> None:
        """TCP_NODELAY: small segments do not wait for acknowledgements."""
        self._ask("Set_Option", dusi.OPT_NODELAY, int(on), dusi.NOTIFY)

    def getpeername(self) -> Address:
        """The peer's address."""
        if self._endpoint.peer is None:
            raise OSError(107, "it has no peer")
        return self._endpoint.peer


class Listener(_Socket):
    """Takes connections. :func:`listen` makes them. Iterating gives connections without end."""

    def accept(self) -> Tuple[Stream, Address]:
        """Waits for a connection: it, and the peer's address."""
        endpoint = self._link.wait(self._endpoint.accept, self._timeout)
        stream = Stream(endpoint)
        return stream, stream.getpeername()

    def __iter__(self) -> "Listener":
        return self

    def __next__(self) -> Stream:
        return self.accept()[0]


def connect(
    address: Address, timeout: Optional[float] = None, *, link: Optional[Link] = None, source_address: Optional[Address] = None
) -> Stream:
    """Connects.

    Args:
        address: (host, port); a host that is a name is looked up as ever.
        timeout: seconds, for connecting and for what the socket waits for later.
        link: the engine; by default that of the process.
        source_address: the own (host, port).

    Raises:
        OSError: ConnectionRefusedError, TimeoutError and so on, as errno says.
    """
    endpoint = opened(link or default_link(), address, source_address)
    stream = Stream(endpoint)
    stream.settimeout(timeout)
    try:
        endpoint.link.wait(endpoint.is_connected, timeout)
    except BaseException:
        stream.close()
        raise
    return stream


def listen(address: Address, backlog: int = 128, *, link: Optional[Link] = None) -> Listener:
    """Listens at (host, port), of the engine's; port 0: any free one, which :meth:`Listener.getsockname` tells.

    Raises:
        OSError: EADDRINUSE, EADDRNOTAVAIL, EACCES and so on.
    """
    link = link or default_link()
    local = dusi.pack(address)
    with link.lock:
        listener = Listener(Endpoint(link))
    try:
        listener._ask("Bind", local, len(local))
        listener._endpoint.local = listener._ask("Listen", backlog)[1]
    except BaseException:
        listener.close()
        raise
    return listener
