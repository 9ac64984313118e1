"""Blocking sockets: those of the socket module, on an engine."""

from typing import Any, Optional, Tuple, Union

from . import _dusi as dusi
from ._base import Base, BaseStream, known, opened
from ._dusi import Address
from ._endpoint import Endpoint
from ._link import Link, default_link

Buffer = Union[bytes, bytearray, memoryview]


class _Socket(Base):
    """What streams and listeners share. Usable as a context manager, which closes it."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._timeout: Optional[float] = None

    def settimeout(self, timeout: Optional[float]) -> None:
        """How many seconds a call waits at most before it raises TimeoutError; None: any time."""
        self._timeout = timeout

    def gettimeout(self) -> Optional[float]:
        """What :meth:`settimeout` has set."""
        return self._timeout

    def _ask(self, call: str, *arguments: Any) -> Tuple[int, Optional[Address]]:
        cookie = self._post(call, *arguments)
        return self._link.wait(lambda: self._endpoint.answer(cookie), self._timeout)

    def getsockname(self) -> Address:
        """The own address."""
        endpoint = self._endpoint
        if endpoint.local is None:
            endpoint.local = self._ask("Get_Option", dusi.OPT_LOCAL_ADDRESS)[1]
        return known(endpoint.local, "it has no address")

    def __enter__(self: Any) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Stream(_Socket, BaseStream):
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

    def set_nodelay(self, on: bool) -> None:
        """TCP_NODELAY: small segments do not wait for acknowledgements."""
        self._ask("Set_Option", dusi.OPT_NODELAY, int(on), dusi.NOTIFY)


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
