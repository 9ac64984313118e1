# HOST PORT END BYTES UNREAD: sends so much and ends one way or another, with something unread if UNREAD is 1.
import os, signal, socket, sys

s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
end, size, unread = sys.argv[3], int(sys.argv[4]), sys.argv[5] == "1"
if unread:
    assert s.recv(1, socket.MSG_PEEK) == b"u"
s.sendall(bytes(i & 255 for i in range(256)) * (size // 256))
if end == "close":
    s.close()
elif end == "shut":
    s.shutdown(socket.SHUT_RDWR)
    s.close()
elif end == "exit":
    os._exit(0)
elif end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
