"""Sockets over an engine. SIDECORE_SOCKET: its agent; SIDECORE_TEST_ADDRESS: an address of the engine; SIDECORE_TEST_PEER: host and port of a server
on the kernel's side that sends back what comes."""

import asyncio
import errno
import gc
import hashlib
import os
import signal
import socket
import threading
import unittest

import sidecore
from sidecore import aio

HOST = os.environ["SIDECORE_TEST_ADDRESS"]
PEER = os.environ.get("SIDECORE_TEST_PEER", "").rpartition(":")
SECONDS = 30


def content(length: int) -> bytes:
    """Bytes that no two places have alike."""
    blocks = (hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(length // 32 + 1))
    return b"".join(blocks)[:length]


def read_all(stream: sidecore.Stream) -> bytes:
    pieces = []
    while piece := stream.recv(100000):
        pieces.append(piece)
    return b"".join(pieces)


class Blocking(unittest.TestCase):
    def setUp(self) -> None:
        self.link = sidecore.Link()
        self.addCleanup(self.link.close)

    def pair(self) -> tuple:
        with sidecore.listen((HOST, 0), link=self.link) as listener:
            listener.settimeout(SECONDS)
            client = sidecore.connect(listener.getsockname(), SECONDS, link=self.link)
            server, peer = listener.accept()
        server.settimeout(SECONDS)
        self.assertEqual(peer, client.getsockname())
        self.assertEqual(client.getpeername(), server.getsockname())
        self.addCleanup(client.close)
        self.addCleanup(server.close)
        return client, server

    def test_bytes_both_ways(self) -> None:
        client, server = self.pair()
        client.set_nodelay(True)
        sent = content(1_500_000)

        def send() -> None:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        self.assertEqual(read_all(server), sent)
        sender.join()
        with self.assertRaises(BrokenPipeError):
            client.send(b"more")
        server.sendall(b"answer")
        server.close()
        self.assertEqual(client.recv(3), b"ans")
        room = bytearray(10)
        self.assertEqual(client.recv_into(room), 3)
        self.assertEqual(bytes(room[:3]), b"wer")
        self.assertEqual(client.recv(10), b"")

    def test_the_kernels_side_sends_back(self) -> None:
        if not PEER[0]:
            self.skipTest("no peer")
        sent = content(2_000_000)
        with sidecore.connect((PEER[0], int(PEER[2])), SECONDS, link=self.link) as stream:

            def send() -> None:
                stream.sendall(memoryview(sent))
                stream.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send)
            sender.start()
            self.assertEqual(read_all(stream), sent)
            sender.join()

    def test_errors_are_those_of_sockets(self) -> None:
        with sidecore.listen((HOST, 0), link=self.link) as listener:
            address = listener.getsockname()
            with self.assertRaises(OSError) as caught:
                sidecore.listen(address, link=self.link)
            self.assertEqual(caught.exception.errno, errno.EADDRINUSE)
            listener.settimeout(0.01)
            with self.assertRaises(TimeoutError):
                listener.accept()
        with self.assertRaises(ConnectionRefusedError):
            sidecore.connect(address, SECONDS, link=self.link)
        with self.assertRaises(OSError) as caught:
            sidecore.listen(("203.0.113.1", 0), link=self.link)
        self.assertEqual(caught.exception.errno, errno.EADDRNOTAVAIL)
        client, server = self.pair()
        server.settimeout(0.01)
        with self.assertRaises(TimeoutError):
            server.recv(1)
        client.close()
        client.close()
        with self.assertRaises(OSError) as caught:
            client.recv(1)
        self.assertEqual(caught.exception.errno, errno.EBADF)
        self.assertEqual(server.recv(1), b"")
        with self.assertRaises(OSError):
            sidecore.Link("/nonexistent/engine.sock")
        client, server = self.pair()
        self.link.close()
        with self.assertRaises(OSError):
            server.recv(1)
        with self.assertRaises(OSError):
            client.send(b"x")

    def test_what_is_dropped_is_closed(self) -> None:
        client, server = self.pair()
        self._cleanups.clear()
        self.addCleanup(self.link.close)
        with self.assertWarns(ResourceWarning):
            del client
            gc.collect()
        self.assertEqual(server.recv(10), b"")
        server.close()

    def test_a_slow_reader_holds_the_sender_up(self) -> None:
        client, server = self.pair()
        client.settimeout(0.2)
        sent = 0
        with self.assertRaises(TimeoutError):
            while True:
                sent += client.send(bytes(100000))
        client.settimeout(SECONDS)
        self.assertLess(sent, 64 << 20)
        finish = threading.Thread(target=lambda: (client.sendall(b"end"), client.shutdown(socket.SHUT_WR)))
        finish.start()
        self.assertEqual(read_all(server), bytes(sent) + b"end")
        finish.join()

    def test_threads_share_a_link(self) -> None:
        pairs = [self.pair() for _ in range(4)]
        wrong = []

        def echo(server: sidecore.Stream) -> None:
            while piece := server.recv(10000):
                server.sendall(piece)
            server.close()

        def ask(client: sidecore.Stream, number: int) -> None:
            sent = content(300_000 + number)
            for at in range(0, len(sent), 50_000):
                piece = sent[at : at + 50_000]
                client.sendall(piece)
                back = b""
                while len(back) < len(piece):
                    back += client.recv(len(piece) - len(back))
                if back != piece:
                    wrong.append(number)

        threads = [threading.Thread(target=echo, args=(server,)) for _, server in pairs]
        threads += [threading.Thread(target=ask, args=(client, at)) for at, (client, _) in enumerate(pairs)]
        for thread in threads:
            thread.start()
        for thread in threads[4:]:
            thread.join()
        for client, _ in pairs:
            client.close()
        for thread in threads[:4]:
            thread.join()
        self.assertEqual(wrong, [])
        self.link.flush(SECONDS)

    def test_a_signal_handler_runs_while_it_waits(self) -> None:
        client, server = self.pair()
        before = signal.signal(signal.SIGALRM, lambda *_: client.sendall(b"rang"))
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        self.assertEqual(server.recv(10), b"rang")


class Coroutines(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.link = sidecore.Link()
        self.addCleanup(self.link.close)

    async def test_many_clients_of_one_server(self) -> None:
        listener = await aio.listen((HOST, 0), link=self.link)
        address = await listener.getsockname()

        async def echo(stream: aio.Stream) -> None:
            async with stream:
                while piece := await stream.recv(20000):
                    await stream.sendall(piece)

        async def serve() -> None:
            async for stream in listener:
                tasks.append(asyncio.create_task(echo(stream)))

        async def ask(number: int) -> None:
            sent = content(200_000 + number)
            async with await aio.connect(address, link=self.link) as stream:
                await stream.set_nodelay(True)
                self.assertEqual(stream.getpeername(), address)
                sender = asyncio.create_task(stream.sendall(sent))
                self.assertEqual(await stream.readexactly(len(sent)), sent)
                await sender
                stream.shutdown(socket.SHUT_WR)
                with self.assertRaises(asyncio.IncompleteReadError):
                    await stream.readexactly(1)

        tasks: list = []
        server = asyncio.create_task(serve())
        await asyncio.wait_for(asyncio.gather(*(ask(number) for number in range(40))), SECONDS)
        server.cancel()
        listener.close()
        await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
        await asyncio.wait_for(self.link.flushed(), SECONDS)

    async def test_the_kernels_side_sends_back(self) -> None:
        if not PEER[0]:
            self.skipTest("no peer")
        sent = content(1_000_000)
        async with await aio.connect((PEER[0], int(PEER[2])), link=self.link) as stream:
            sender = asyncio.create_task(stream.sendall(sent))
            back = await asyncio.wait_for(stream.readexactly(len(sent)), SECONDS)
            await sender
        self.assertEqual(back, sent)

    async def test_what_is_cancelled_leaves_the_socket_as_it_is(self) -> None:
        listener = await aio.listen((HOST, 0), link=self.link)
        address = await listener.getsockname()
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(listener.accept(), 0.02)
        client = await aio.connect(address, link=self.link)
        server, _ = await listener.accept()
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(server.recv(10), 0.02)
        await client.sendall(b"later")
        self.assertEqual(await server.recv(10), b"later")
        listener.close()
        with self.assertRaises(OSError):
            await listener.accept()
        with self.assertRaises(ConnectionRefusedError):
            await aio.connect(address, link=self.link)
        # A wait that a close ends.
        waiting = asyncio.create_task(server.recv(10))
        await asyncio.sleep(0.01)
        server.close()
        with self.assertRaises(OSError):
            await asyncio.wait_for(waiting, SECONDS)
        self.assertEqual(await client.recv(10), b"")

    async def test_a_thread_works_beside_the_loop(self) -> None:
        listener = await aio.listen((HOST, 0), link=self.link)
        address = await listener.getsockname()

        def ask() -> bytes:
            with sidecore.connect(address, SECONDS, link=self.link) as stream:
                stream.sendall(b"from a thread")
                return stream.recv(100)

        answer = asyncio.get_running_loop().run_in_executor(None, ask)
        stream, _ = await listener.accept()
        self.assertEqual(await stream.recv(100), b"from a thread")
        await stream.sendall(b"from the loop")
        self.assertEqual(await answer, b"from the loop")


if __name__ == "__main__":
    unittest.main()
