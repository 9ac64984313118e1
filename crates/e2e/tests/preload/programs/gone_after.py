# HOST PORT: connects, and waits for a line; by then the engine is gone, and what it had is told. What is made anew is the kernel's, or ends the program.
import socket, sys

near = (sys.argv[1], int(sys.argv[2]))
s = socket.create_connection(near)
print("connected", flush=True)
sys.stdin.readline()
try:
    s.recv(1)
except ConnectionResetError:
    print("reset", flush=True)
# The kernel has no way there: the device went with the engine.
try:
    socket.create_connection(near, 5)
    print("connected again")
except OSError:
    print("none", flush=True)
a = socket.create_server(("127.0.0.1", 0))
b = socket.create_connection(a.getsockname())
b.sendall(b"x")
assert a.accept()[0].recv(1) == b"x"
print("local", flush=True)
