# HOST PORT FILE: answers GET with the file, and POST with the SHA-256 of what was posted; a thread for each connection.
import hashlib, http.server, pathlib, sys

host, port, file = sys.argv[1:]
whole = pathlib.Path(file).read_bytes()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(whole)

    def do_POST(self):
        posted = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(hashlib.sha256(posted).hexdigest().encode())

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
