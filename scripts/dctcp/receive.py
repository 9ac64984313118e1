"""Takes what the server sends for 25 seconds and says how much that was in the last 20."""

import socket
import sys
import time

WARM_UP, END = 5, 25
for _ in range(20):
    try:
        connection = socket.create_connection((sys.argv[1], 80), 3)
        break
    except OSError:
        time.sleep(0.5)
else:
    sys.exit("no connection")
connection.sendall(b"GET /file HTTP/1.0\r\n\r\n")
connection.settimeout(10)
began, received, mark = time.monotonic(), 0, None
while True:
    piece = connection.recv(1 << 18)
    if not piece:
        sys.exit("the server has ended")
    received += len(piece)
    elapsed = time.monotonic() - began
    if mark is None and elapsed > WARM_UP:
        mark = (received, elapsed)
    if elapsed > END:
        print("Mbit/s %.2f" % ((received - mark[0]) * 8 / (elapsed - mark[1]) / 1e6))
        break
