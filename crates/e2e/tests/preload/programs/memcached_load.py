# HOST PORT DEPTH: sets and gets over sixteen connections at once, DEPTH of each before the answers are read.
import socket, sys, threading

host, port, depth = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
done = []


def client(n):
    file = socket.create_connection((host, port), 50).makefile("rwb")
    for turn in range(200 // depth):
        values = [b"%d-%d-%d-" % (n, turn, i) * 100 for i in range(depth)]
        for i, value in enumerate(values):
            file.write(b"set k%d-%d 0 0 %d\r\n%s\r\nget k%d-%d\r\n" % (n, i, len(value), value, n, i))
        file.flush()
        for i, value in enumerate(values):
            assert file.readline() == b"STORED\r\n"
            assert file.readline() == b"VALUE k%d-%d 0 %d\r\n" % (n, i, len(value))
            assert file.read(len(value) + 7) == value + b"\r\nEND\r\n"
    done.append(n)


threads = [threading.Thread(target=client, args=(n,)) for n in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(done))
