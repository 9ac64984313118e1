"""Serves one client what it takes in 27 seconds, and says what the kernel knows of the connection."""

import socket
import subprocess
import time

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", 80))
listener.listen(1)
listener.settimeout(40)
connection, _ = listener.accept()
connection.settimeout(30)
end = time.monotonic() + 27
told = False
try:
    while time.monotonic() < end:
        connection.send(b"x" * 65536)
        if not told and time.monotonic() > end - 7:
            told = True
            print(subprocess.run(["ss", "-tin"], capture_output=True, text=True).stdout)
except OSError as error:
    print(error)
