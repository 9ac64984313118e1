"""Sends lines, and compares what comes back. Usage: echo_client.py ADDRESS PORT MESSAGES"""

import sys
import threading

import sidecore

LENGTH = 16384


def main(host: str, port: int, messages: int) -> None:
    with sidecore.connect((host, port), timeout=30) as stream:

        def send() -> None:
            for number in range(messages):
                stream.sendall(bytes([number & 0xFF]) * LENGTH)

        sender = threading.Thread(target=send)
        sender.start()
        for number in range(messages):
            left = LENGTH
            while left:
                piece = stream.recv(left)
                if piece != bytes([number & 0xFF]) * len(piece) or not piece:
                    raise SystemExit(f"message {number} came back changed")
                left -= len(piece)
        sender.join()
    print(messages, "messages of", LENGTH, "bytes came back unchanged")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
