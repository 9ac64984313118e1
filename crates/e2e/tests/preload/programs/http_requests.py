# FILE URL...: asks each of them several times, four threads with a session each, and compares.
import hashlib, pathlib, sys, threading
import requests

whole = pathlib.Path(sys.argv[1]).read_bytes()
same = []


def client(url):
    with requests.Session() as session:
        for _ in range(3):
            assert session.get(url, timeout=50).content == whole, url
            assert session.post(url, data=whole, timeout=50).text == hashlib.sha256(whole).hexdigest(), url
            same.append(url)


threads = [threading.Thread(target=client, args=(url,)) for url in sys.argv[2:] for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("same", 2 * len(same))
