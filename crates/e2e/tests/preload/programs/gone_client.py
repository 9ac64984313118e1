# HOST PORT: connections to redis in several ways of waiting. Ends well when each of them is told that the engine has gone.
import errno, select, socket, sys, threading

told = []


def connect():
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    s.sendall(b"PING\r\n")
    assert s.recv(100) == b"+PONG\r\n"
    return s


def ends(name, wait):
    s = connect()
    try:
        wait(s)
        answer = s.recv(1)
    except OSError as error:
        answer = error.errno
    told.append((name, answer))


def polls(s):
    poll = select.poll()
    poll.register(s, select.POLLIN)
    assert poll.poll(30000)


def epolls(s):
    epoll = select.epoll()
    epoll.register(s, select.EPOLLIN | select.EPOLLET)
    assert epoll.poll(30)


def selects(s):
    assert select.select([s], [], [], 30)[0]


def writes(s):
    while True:
        s.sendall(b"PING\r\n" * 1000)


ways = {
    "recv": lambda s: None,
    "poll": polls,
    "epoll": epolls,
    "select": selects,
    "write": writes,
}
threads = [threading.Thread(target=ends, args=way) for way in ways.items()]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(40)
# Where a call had sent a part, its successor finds the pipe broken.
want = {errno.ECONNRESET, errno.EPIPE}
assert len(told) == len(ways) and all(answer in want for _, answer in told), told
