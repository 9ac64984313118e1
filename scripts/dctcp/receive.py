"""Takes what each of the servers sends for 25 seconds, all at once, and says how much each brought in the last 20, and when, as a plot."""

import json
import selectors
import socket
import sys
import time

WARM_UP, END, STEP = 5, 25, 0.5
NAMES = {"10.9.0.1": "engine", "10.9.0.3": "guest kernel"}


def connect(address):
    for _ in range(40):
        try:
            connection = socket.create_connection((address, 80), 3)
            connection.sendall(b"GET /file HTTP/1.0\r\n\r\n")
            return connection
        except OSError:
            time.sleep(0.5)
    sys.exit(f"no connection to {address}")


peers = [connect(address) for address in sys.argv[1].split(",")]
selector = selectors.DefaultSelector()
for number, peer in enumerate(peers):
    selector.register(peer, selectors.EVENT_READ, number)
began, received, mark = time.monotonic(), [0] * len(peers), None
points, before, drawn = [[] for _ in peers], [0] * len(peers), 0.0
while True:
    for key, _ in selector.select(10):
        piece = key.fileobj.recv(1 << 18)
        if not piece:
            sys.exit("a server has ended")
        received[key.data] += len(piece)
    elapsed = time.monotonic() - began
    if elapsed >= drawn + STEP:
        for line, now, then in zip(points, received, before):
            line.append((round(elapsed, 3), round((now - then) * 8 / (elapsed - drawn) / 1e6, 3)))
        before, drawn = list(received), elapsed
    if mark is None and elapsed > WARM_UP:
        mark = (list(received), elapsed)
    if elapsed > END:
        seconds = elapsed - mark[1]
        rates = [(now - then) * 8 / seconds / 1e6 for now, then in zip(received, mark[0])]
        print("Mbit/s", *("%.2f" % rate for rate in rates))
        if len(rates) > 1:
            jain = sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))
            print("Jain's index %.3f" % jain)
        series = [{"name": NAMES[address], "points": line} for address, line in zip(sys.argv[1].split(","), points)]
        plot = {"title": "DCTCP", "x": "seconds from the start", "y": "Mbit/s", "groups": [], "series": series}
        print("plot", json.dumps(plot))
        break
