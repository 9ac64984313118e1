"""One socket: what came, what is under way, how it ended. Nothing here waits; what would gives None."""

import asyncio
import ctypes
from collections import deque
from typing import Deque, Dict, List, Optional, Tuple

from . import _dusi as dusi
from ._link import BLOCK, Link

#: Pieces of send memory that one connection may have under way: 1 MiB.
IN_FLIGHT = 64
#: Accepts that a listener keeps posted.
ACCEPTS = 16


class Endpoint:
    """A DTI. Its methods are called with the link's lock held."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._lib = dusi.library()
        self.connected = False
        self.local: Optional[dusi.Address] = None
        self.peer: Optional[dusi.Address] = None
        self.end = False
        #: Why the connection is over; DUSI_OK in good order.
        self.over: Optional[int] = None
        self.failed: Optional[int] = None
        self.closing = False
        self._write_shut = False
        #: Chunk, address, length, and bytes that were read of it.
        self._received: Deque[List[int]] = deque()
        self._flight: Deque[Tuple[int, int]] = deque()
        self._answers: Dict[int, Optional[Tuple[int, int, Optional[dusi.Address]]]] = {}
        self._accepted: Deque["Endpoint"] = deque()
        self._listener: Optional["Endpoint"] = None
        #: Coroutines that wait for it.
        self.futures: Deque["asyncio.Future[None]"] = deque()
        self._posted: Dict[int, "Endpoint"] = {}
        self.dti = link.create(self)

    # Events.

    def handle_event(self, event: "dusi.Event") -> None:
        """Takes an event in."""
        kind = event.kind
        if kind == dusi.RECEIVED:
            self.end = self.end or bool(event.flags & dusi.EVENT_END)
            if event.chunk == dusi.NO_CHUNK:
                return
            if self.closing or not event.length:
                self._lib.Dusi_Return_Chunk(event.chunk)
            else:
                self._received.append([event.chunk, event.data, event.length, 0])
        elif kind == dusi.SENT:
            self._acknowledged(event.cookie)
        elif kind == dusi.CONNECTED:
            if event.status == dusi.OK:
                self.connected, self.local = True, dusi.address_of(event)
            else:
                self.failed = event.status
        elif kind == dusi.ACCEPTED:
            self.connected, self.peer = True, dusi.address_of(event)
            if self._listener is not None:
                self._listener._child_came(self)
        elif kind == dusi.COMPLETION:
            self._completed(event)
        elif kind == dusi.CLOSED:
            self._ended(event.status)

    def _completed(self, event: "dusi.Event") -> None:
        if event.operation == dusi.OP_ACCEPT:
            # This is the child: it comes to nothing.
            if self._listener is not None:
                self._listener._posted.pop(self.dti, None)
                if not self._listener.closing:
                    self._listener.failed = event.status
                    self.link._dirty.add(self._listener)
            self.close()
        elif event.cookie in self._answers:
            self._answers[event.cookie] = (event.status, event.value, dusi.address_of(event))
        elif event.status != dusi.OK:
            self.failed = event.status

    def _acknowledged(self, cookie: int) -> None:
        while self._flight and self._flight[0][0] <= cookie:
            self.link.give_block(self._flight.popleft()[1])

    def _ended(self, status: int) -> None:
        self.over = status
        if self._flight:
            self._acknowledged(self._flight[-1][0])
        if self.closing:
            self.closing = False
            self.link.forget(self.dti)

    def _child_came(self, child: "Endpoint") -> None:
        self.link._dirty.add(self)
        self._posted.pop(child.dti, None)
        if self.closing or self.over is not None:
            child.close()
        else:
            self._accepted.append(child)

    # Operations.

    def ask(self, call: str, *arguments: object) -> int:
        """Posts a command that is answered; the number for :meth:`answer`."""
        cookie = self.link.cookie()
        self._answers[cookie] = None
        self.link.post(getattr(self._lib, "Dusi_" + call), self.dti, *arguments, cookie)
        return cookie

    def answer(self, cookie: int) -> Optional[Tuple[int, Optional[dusi.Address]]]:
        """Value and address of an answer; raises if it was a refusal."""
        answer = self._answers.get(cookie)
        if answer is None:
            if self.over is not None:
                raise dusi.error(self.over or dusi.BAD_HANDLE)
            return None
        del self._answers[cookie]
        dusi.check(answer[0])
        return answer[1], answer[2]

    def connect(self, address: bytes, local: Optional[bytes]) -> None:
        """Begins to connect."""
        if local is not None:
            self.link.post(self._lib.Dusi_Bind, self.dti, local, len(local), 0)
        self.link.post(self._lib.Dusi_Connect, self.dti, address, len(address), 0, 0)

    def is_connected(self) -> Optional[bool]:
        """Whether the connection is there; raises why not."""
        if self.failed is not None:
            raise dusi.error(self.failed)
        if self.over is not None:
            raise dusi.error(self.over or dusi.DISCONNECTED)
        return True if self.connected else None

    def accept(self) -> Optional["Endpoint"]:
        """The next connection."""
        if self.closing or self.over is not None:
            raise dusi.error(dusi.BAD_HANDLE)
        while len(self._posted) < ACCEPTS:
            child = Endpoint(self.link)
            child._listener = self
            self._posted[child.dti] = child
            self.link.post(self._lib.Dusi_Accept, self.dti, child.dti, child.dti)
        if self._accepted:
            return self._accepted.popleft()
        if self.failed is not None:
            failed, self.failed = self.failed, None
            raise dusi.error(failed)
        return None

    def read(self, room: "memoryview") -> Optional[int]:
        """Copies received bytes to ``room``: how many; 0 at the end."""
        if self.closing:
            raise dusi.error(dusi.BAD_HANDLE)
        done = 0
        while self._received and done < len(room):
            piece = self._received[0]
            n = min(len(room) - done, piece[2] - piece[3])
            room[done : done + n] = (ctypes.c_char * n).from_address(piece[1] + piece[3])[:]
            done += n
            piece[3] += n
            if piece[3] == piece[2]:
                self._received.popleft()
                self._lib.Dusi_Return_Chunk(piece[0])
        if done or not len(room) or self.end or self.over == dusi.OK:
            return done
        if self.over is not None:
            raise dusi.error(self.over)
        self._raise_failure()
        return None

    def write(self, data: "memoryview") -> Optional[int]:
        """Copies bytes to send memory and posts them: how many."""
        if self.closing:
            raise dusi.error(dusi.BAD_HANDLE)
        if self._write_shut or self.over == dusi.OK:
            raise BrokenPipeError(32, "sending has ended")
        if self.over is not None:
            raise dusi.error(self.over)
        self._raise_failure()
        if not self.connected:
            return None
        if not len(data):
            return 0
        if len(self._flight) >= IN_FLIGHT:
            return None
        block = self.link.take_block(self)
        if block is None:
            return None
        n = min(len(data), BLOCK)
        try:
            ctypes.memmove(block, bytes(data[:n]), n)
            cookie = self.link.cookie()
            self.link.post(self._lib.Dusi_Send, self.dti, self.link.region, block, n, dusi.NOTIFY, cookie)
        except BaseException:
            self.link.give_block(block)
            raise
        self._flight.append((cookie, block))
        return n

    def _raise_failure(self) -> None:
        if self.failed is not None:
            failed, self.failed = self.failed, None
            raise dusi.error(failed)

    def shutdown(self, how: int) -> None:
        """Ends directions: 0 receiving, 1 sending, 2 both, as the socket module has it."""
        if how not in (0, 1, 2):
            raise OSError(22, "no such direction")
        self._write_shut = self._write_shut or how != 0
        self.end = self.end or how != 1
        self.link.post(self._lib.Dusi_Shutdown, self.dti, how + 1, 0, 0)

    def is_closed(self) -> bool:
        """Whether it was closed, or its link."""
        return self.closing or self.link._endpoints.get(self.dti) is not self

    def close(self) -> None:
        """Closes it; what was sent still goes out. Safe to call twice."""
        if self.is_closed():
            return
        for chunk, *_ in self._received:
            self._lib.Dusi_Return_Chunk(chunk)
        self._received.clear()
        for child in self._accepted:
            child.close()
        self._accepted.clear()
        self.closing = True
        try:
            self.link.post(self._lib.Dusi_Close, self.dti, 0)
        except OSError:
            # The engine is gone, and the connection with it.
            self.over = self.over if self.over is not None else dusi.DISCONNECTED
        if self.over is not None:
            self._ended(self.over)
        self.link.changed(self)
