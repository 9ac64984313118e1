"""The connection to an engine, and what waits on it: threads, and coroutines of one event loop."""

import asyncio
import ctypes
import os
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, Iterable, List, Optional, Set, TypeVar

from . import _dusi as dusi

if TYPE_CHECKING:
    from ._endpoint import Endpoint

T = TypeVar("T")

#: Bytes of one piece of send memory.
BLOCK = 16384

#: How long to leave the engine alone when its doorbell queue is full.
PAUSE = 0.0005


class Link:
    """One UAL with one event queue, and memory to send from. Any number of sockets share it.

    Args:
        path: where the engine's agent listens; by default SIDECORE_SOCKET, or the engine's usual place.
        send_bytes: memory to send from, for all sockets together.

    Raises:
        OSError: no engine answers there, or it refuses.

    Threads may share a link. A link serves coroutines of one event loop at a time: that in which it is first awaited.
    """

    def __init__(self, path: Optional[str] = None, *, send_bytes: int = 4 << 20) -> None:
        self._lib = lib = dusi.library()
        path = path or os.environ.get("SIDECORE_SOCKET")
        handle = dusi.c_uint64()
        ctypes.set_errno(0)
        dusi.check(lib.Dusi_Open_Ual(path.encode() if path else None, None, dusi.byref(handle)))
        self.handle: int = handle.value
        try:
            dusi.check(lib.Dusi_Create_Evq(self.handle, dusi.byref(handle)))
            self.evq: int = handle.value
            fd = dusi.c_int()
            dusi.check(lib.Dusi_Get_Evq_Fd(self.evq, dusi.byref(fd)))
            self._fd: int = fd.value
            region, address = dusi.c_uint64(), dusi.c_void_p()
            count = max(1, send_bytes // BLOCK)
            dusi.check(lib.Dusi_Allocate_Memory(self.handle, count * BLOCK, 0, dusi.byref(region), dusi.byref(address)))
        except BaseException:
            lib.Dusi_Close_Ual(self.handle)
            raise
        self.region: int = region.value
        start = address.value or 0
        self._blocks: List[int] = [start + at * BLOCK for at in range(count)]
        self._event = dusi.Event()
        self._endpoints: Dict[int, "Endpoint"] = {}
        self._cookies = 0
        self._closed = False
        self._gone = False
        self._leading = False
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._loop_thread = 0
        #: Coroutines that wait for the link itself; those that wait for an endpoint are with that.
        self._futures: Deque["asyncio.Future[None]"] = deque()
        #: Endpoints that something came for, and those that found no send memory.
        self._dirty: Set["Endpoint"] = set()
        self._starving: Set["Endpoint"] = set()
        #: Endpoints whose sockets were dropped without a close.
        self.orphans: Deque["Endpoint"] = deque()

    # What endpoints use. With the lock held.

    def cookie(self) -> int:
        """A number for an operation."""
        self._cookies += 1
        return self._cookies

    def post(self, call: Callable[..., int], *arguments: Any) -> None:
        """Posts an operation; while the doorbell queue is full, events are taken."""
        while True:
            if self._closed or self._gone:
                raise dusi.error(dusi.DISCONNECTED)
            status = call(*arguments)
            if status != dusi.DOORBELL_FULL:
                return dusi.check(status)
            self.drain()
            time.sleep(PAUSE)

    def create(self, endpoint: "Endpoint") -> int:
        """Makes a DTI whose events go to ``endpoint``."""
        handle = dusi.c_uint64()
        self.post(self._lib.Dusi_Create_Dti, self.handle, dusi.STREAM, self.evq, self.evq, 0, dusi.byref(handle))
        self._endpoints[handle.value] = endpoint
        return handle.value

    def forget(self, dti: int) -> None:
        """No more events come for it."""
        self._endpoints.pop(dti, None)

    def take_block(self, endpoint: "Endpoint") -> Optional[int]:
        """The address of a free piece of memory; if there is none, the endpoint is woken when there is."""
        if self._blocks:
            return self._blocks.pop()
        self._starving.add(endpoint)
        return None

    def give_block(self, block: int) -> None:
        """It is free again."""
        self._blocks.append(block)
        self._dirty |= self._starving
        self._starving.clear()

    def drain(self) -> bool:
        """Hands out what the event queue has. Whether there was something."""
        some = False
        while self.orphans and not self._closed:
            self.orphans.popleft().close()
        while not self._closed:
            status = self._lib.Dusi_Dequeue_Event(self.evq, dusi.byref(self._event))
            if status == dusi.EMPTY:
                break
            if status != dusi.OK:
                self._gone = self._gone or status == dusi.DISCONNECTED
                break
            some = True
            self._dispatch(self._event)
        if some or self._gone:
            self.wake()
        return some

    def _dispatch(self, event: "dusi.Event") -> None:
        dti = event.cookie if event.kind == dusi.COMPLETION and event.operation == dusi.OP_ACCEPT else event.dti
        endpoint = self._endpoints.get(dti)
        if endpoint is not None:
            self._dirty.add(endpoint)
            endpoint.handle_event(event)
        elif event.chunk != dusi.NO_CHUNK:
            self._lib.Dusi_Return_Chunk(event.chunk)

    def wake(self) -> None:
        """Something has changed: whoever waits looks again."""
        self._changed.notify_all()
        if self._leading and not self._closed:
            # The thread that sleeps on the queue.
            self._lib.Dusi_Nop(self.evq, 0)
        dirty: Iterable["Endpoint"] = self._dirty
        if self._gone or self._closed:
            dirty = list(self._endpoints.values())
        ready = list(self._futures)
        self._futures.clear()
        for endpoint in dirty:
            ready.extend(endpoint.futures)
            endpoint.futures.clear()
        self._dirty.clear()
        loop = self._loop
        if loop is None or not ready or loop.is_closed():
            return
        if threading.get_ident() == self._loop_thread:
            _wake_all(ready)
        else:
            loop.call_soon_threadsafe(_wake_all, ready)

    def changed(self, endpoint: "Endpoint") -> None:
        """The program has changed something of an endpoint: who waits for it looks again."""
        self._dirty.add(endpoint)
        self.wake()

    def _check_open(self) -> None:
        if self._closed:
            # Its memory is gone, too.
            raise dusi.error(dusi.DISCONNECTED)

    # Threads.

    def wait(self, ready: Callable[[], Optional[T]], timeout: Optional[float]) -> T:
        """Waits until ``ready`` gives something else than None. It is called with the lock held, and may raise."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while True:
                self._check_open()
                self.drain()
                value = ready()
                if value is not None:
                    return value
                if self._gone or self._closed:
                    raise dusi.error(dusi.DISCONNECTED)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError("timed out")
                if self._leading or self._loop is not None:
                    self._changed.wait(left)
                else:
                    self._lead(left)

    def _lead(self, left: Optional[float]) -> None:
        """One sleep on the event queue, without the lock. Python's signal handlers run meanwhile."""
        status = self._lib.Dusi_Arm_Evq(self.evq)
        if status != dusi.OK:
            self._gone = self._gone or status == dusi.DISCONNECTED
            return
        self._leading = True
        self._lock.release()
        try:
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            poll.poll(None if left is None else max(1, int(left * 1000)))
        finally:
            self._lock.acquire()
            self._leading = False
            if not self._closed:
                self._lib.Dusi_Disarm_Evq(self.evq)
            # Somebody else may lead.
            self._changed.notify_all()

    # Coroutines.

    async def until(self, ready: Callable[[], Optional[T]], endpoint: Optional["Endpoint"] = None) -> T:
        """The same for a coroutine, which looks again when something came for ``endpoint``; without one, for any."""
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                self._check_open()
                self._attach(loop)
                self.drain()
                value = ready()
                if value is not None:
                    return value
                if self._gone or self._closed:
                    raise dusi.error(dusi.DISCONNECTED)
                future: "asyncio.Future[None]" = loop.create_future()
                (self._futures if endpoint is None else endpoint.futures).append(future)
                self._arm()
            await future

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise RuntimeError("this link serves another event loop")
        self._loop, self._loop_thread = loop, threading.get_ident()
        self._futures.clear()
        for endpoint in self._endpoints.values():
            endpoint.futures.clear()
        loop.add_reader(self._fd, self._readable)

    def _arm(self) -> None:
        """Asks for the descriptor to tell of events; those that are there already are taken."""
        while not (self._closed or self._gone):
            status = self._lib.Dusi_Arm_Evq(self.evq)
            if status == dusi.OK:
                return
            if status != dusi.NOT_EMPTY:
                self._gone = True
                self.wake()
                return
            self.drain()

    def _readable(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._lib.Dusi_Disarm_Evq(self.evq)
            self.drain()
            self._arm()
            if self._gone and self._loop is not None:
                # It stays readable for ever.
                self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Ends it, and all its sockets. What was sent and is not acknowledged is lost: close sockets and wait for it first."""
        with self._lock:
            if self._closed:
                return
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            self.wake()
            self._closed = True
            self.wake()
            self._lib.Dusi_Close_Ual(self.handle)
            self._endpoints.clear()

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until all sockets that were closed are over: what was sent on them has arrived, or never will."""
        self.wait(lambda: None if any(e.closing for e in self._endpoints.values()) else True, timeout)

    async def flushed(self) -> None:
        """The same for a coroutine."""
        await self.until(lambda: None if any(e.closing for e in self._endpoints.values()) else True)

    @property
    def lock(self) -> "threading.RLock":
        """Held around whatever is said about sockets of this link."""
        return self._lock  # type: ignore[return-value]

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _wake_all(futures: List["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


_default: Optional[Link] = None
_default_pid = 0
_making = threading.Lock()


def default_link() -> Link:
    """The process's own link, made at first use. A forked child has another."""
    global _default, _default_pid
    with _making:
        if _default is None or _default_pid != os.getpid() or _default._gone or _default._closed:
            _default, _default_pid = Link(), os.getpid()
        return _default
