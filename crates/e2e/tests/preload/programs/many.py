# HOST PORT: three thousand connections to an echo server at once, on one thread: by epoll, by poll, and as far as it goes by select.
import ctypes, resource, select, socket, sys

MANY = 3000
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(5000, hard), hard))
to = (sys.argv[1], int(sys.argv[2]))
sockets = [socket.create_connection(to, 50) for _ in range(MANY)]
number = {s.fileno(): at for at, s in enumerate(sockets)}
assert len(number) == MANY and max(number) > 3000
last = sockets[-1]


def round(wait):
    """One message over each, and back."""
    for at, s in enumerate(sockets):
        s.sendall(b"%04d" % at)
    left = set(range(MANY))
    while left:
        ready = wait()
        assert ready
        for fd, events in ready:
            assert events == select.POLLIN, events
            at = number[fd]
            assert sockets[at].recv(4, socket.MSG_WAITALL) == b"%04d" % at
            left.remove(at)


epoll, poll = select.epoll(), select.poll()
for s in sockets:
    epoll.register(s, select.EPOLLIN)
    poll.register(s, select.POLLIN)
round(lambda: epoll.poll(50))
round(lambda: poll.poll(50000))
print("epoll and poll")
# Python's own select knows no numbers above FD_SETSIZE.
try:
    select.select([last], [], [], 0)
except ValueError as error:
    print(error)
# The system's does, if the sets are as large.
libc = ctypes.CDLL(None, use_errno=True)
word, bit = divmod(last.fileno(), 64)
bits = (ctypes.c_uint64 * 128)()
now = (ctypes.c_long * 2)(0, 0)
for expect in (0, 1):
    if expect:
        last.sendall(b"x")
        poll = select.poll()
        poll.register(last, select.POLLIN)
        assert poll.poll(50000)
    bits[word] = 1 << bit
    found = libc.select(last.fileno() + 1, bits, None, None, now)
    print(found, bits[word] >> bit & 1, sum(bin(w).count("1") for w in bits))
bits[word] = 1 << bit
closed = last.fileno()
last.close()
print(libc.select(closed + 1, bits, None, None, now), ctypes.get_errno())
