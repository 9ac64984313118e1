# HOST PORT WAY: ends in the midst of things: threads wait in every call that waits, and much is unsent.
import atexit, os, select, signal, socket, sys, threading, time

host, port, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def connect():
    s = socket.create_connection((host, port))
    s.sendall(b"hello")
    return s


listener = socket.create_server(("10.77.0.2", 0))
one, two, three, four = (connect() for _ in range(4))
epoll, poll = select.epoll(), select.poll()
epoll.register(two, select.EPOLLIN)
epoll.register(listener, select.EPOLLIN)
poll.register(three, select.POLLIN)
four.setblocking(False)
try:
    while True:
        four.send(bytes(65536))
except BlockingIOError:
    four.setblocking(True)
calls = (
    lambda: one.recv(1),
    lambda: epoll.poll(),
    lambda: epoll.poll(),
    lambda: poll.poll(),
    listener.accept,
    lambda: four.sendall(bytes(10_000_000)),
)
for call in calls:
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.3)
# Sockets are used while the program ends, too.
atexit.register(lambda: connect().close())
print("ready", flush=True)
if way == "return":
    sys.exit(3)
if way == "_exit":
    os._exit(3)
if way == "abort":
    os.abort()
if way == "signal":
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(3))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    one.settimeout(20)
    one.recv(1)
if way == "exec":
    os.execv("/bin/sh", ["sh", "-c", "exit 3"])
if way == "fork":
    child = os.fork()
    if child == 0:
        sys.exit(3)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
