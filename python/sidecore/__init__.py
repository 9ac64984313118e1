"""Sockets on a Sidecore engine: blocking ones here, for asyncio in :mod:`sidecore.aio`.

>>> import sidecore
>>> with sidecore.connect(("10.77.0.1", 80)) as stream:
...     stream.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
...     print(stream.recv(4096))

Errors are OSError with errno, and its subclasses. The guide is docs/python.md.
"""

from . import aio
from ._link import Link, default_link
from ._sockets import Listener, Stream, connect, listen

__all__ = ["Link", "Listener", "Stream", "aio", "connect", "default_link", "listen"]
__version__ = "0.1.0"
