"""What sockets are whichever way their calls wait."""

import warnings
from typing import Optional

from . import _dusi as dusi
from ._dusi import Address
from ._endpoint import Endpoint
from ._link import Link


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


def known(address: Optional[Address], what: str) -> Address:
    """The address, or ENOTCONN."""
    if address is None:
        raise OSError(107, what)
    return address


class Base:
    """What streams and listeners share."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._link = endpoint.link

    def _post(self, call: str, *arguments: object) -> int:
        """Posts a command that is answered; the number for :meth:`Endpoint.answer`."""
        with self._link.lock:
            return self._endpoint.ask(call, *arguments)

    def __del__(self) -> None:
        endpoint = getattr(self, "_endpoint", None)
        if endpoint is not None and not endpoint.is_closed():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            # At a moment when nobody is in the midst of something.
            endpoint.link.orphans.append(endpoint)

    def close(self) -> None:
        """Closes it. What was sent still goes out (:meth:`Link.flush` or :meth:`Link.flushed` waits for it). Safe to call twice."""
        with self._link.lock:
            self._endpoint.close()


class BaseStream(Base):
    """What of a connection never waits."""

    def shutdown(self, how: int) -> None:
        """Ends directions: socket.SHUT_RD, SHUT_WR, SHUT_RDWR."""
        with self._link.lock:
            self._endpoint.shutdown(how)
            self._link.changed(self._endpoint)

    def getpeername(self) -> Address:
        """The peer's address."""
        return known(self._endpoint.peer, "it has no peer")
