# Clients at work while redis saves in forked children: HOST PORT CLIENTS ROUNDS. Each client counts and writes in rounds, all of them in each; every
# answer is compared. A part of them leaves, and comes anew, while a child is at work. Prints how many answers were right.
import re, socket, sys, time

host, port, clients, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])


def words(*all):
    parts = [b"*%d\r\n" % len(all)]
    for word in all:
        word = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class Client:
    def __init__(self):
        self.socket = socket.create_connection((host, port), timeout=50)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def say(self, *all):
        self.socket.sendall(b"".join(words(*command) for command in all))

    def line(self):
        while b"\r\n" not in self.rest:
            piece = self.socket.recv(65536)
            assert piece, "the server has closed"
            self.rest += piece
        line, self.rest = self.rest.split(b"\r\n", 1)
        return line

    def ask(self, *command):
        self.say(command)
        line = self.line()
        if line[:1] != b"$" or line == b"$-1":
            return line
        size = int(line[1:]) + 2
        while len(self.rest) < size:
            piece = self.socket.recv(65536)
            assert piece, "the server has closed"
            self.rest += piece
        bulk, self.rest = self.rest[: size - 2], self.rest[size:]
        return bulk


def value(client, turn):
    return b"%d-%d-" % (client, turn) * (20 + client % 50)


def saves(control):
    info = control.ask("INFO", "persistence").decode()
    return {name: int(number) for name, number in re.findall(r"(\w+):(\d+)\r", info)}


control = Client()
assert control.ask("CONFIG", "SET", "rdb-key-save-delay", "300") == b"+OK"
assert control.ask("CONFIG", "SET", "appendonly", "yes") == b"+OK"
all = [Client() for _ in range(clients)]
right = begun = 0
for turn in range(rounds):
    state = saves(control)
    busy = state["rdb_bgsave_in_progress"] + state["aof_rewrite_in_progress"] + state["aof_rewrite_scheduled"]
    if not busy:
        answer = control.ask("BGREWRITEAOF" if begun % 2 else "BGSAVE")
        assert answer.startswith(b"+Background"), answer
        begun += 1
    for number, client in enumerate(all):
        client.say(("INCR", f"count-{number}"), ("SET", f"key-{number}-{turn % 7}", value(number, turn)), ("GET", f"key-{number}-{turn % 7}"))
    for number, client in enumerate(all):
        assert client.line() == b":%d" % (turn + 1)
        assert client.line() == b"+OK"
        wished = value(number, turn)
        assert client.line() == b"$%d" % len(wished)
        while len(client.rest) < len(wished) + 2:
            client.rest += client.socket.recv(65536)
        assert client.rest[: len(wished)] == wished
        client.rest = client.rest[len(wished) + 2 :]
        right += 3
    for number in range(turn % 5, clients, 5 * 7):
        all[number].socket.close()
        all[number] = Client()
while True:
    state = saves(control)
    if not (state["rdb_bgsave_in_progress"] or state["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"]):
        break
    time.sleep(0.05)
assert begun >= 3, begun
assert control.ask("CONFIG", "SET", "rdb-key-save-delay", "0") == b"+OK"
print(right, flush=True)
# The connections stay until the test has looked at them.
sys.stdin.read()
