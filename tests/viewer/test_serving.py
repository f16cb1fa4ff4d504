"""The server as a process sees it: raw requests, many at once, and visitors who never finish. Nothing leaks, and it lives on."""

import http.client
import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from dsfcnn.errors import UsageError
from dsfcnn.viewer import serve
from dsfcnn.viewer.server import make_app

from .conftest import WORDS, described, key_of

PAGE = {"index.html": ("text/html", b"<p>page"), "main.js": ("text/javascript", b"//")}
TOKEN = "t0ken-of-this-test"


@contextmanager
def running(app):
    server = serve.make_server(app)
    listening = serve._listen("127.0.0.1", None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


class Asking:
    """A client of plain sockets, which sends what it is told to."""

    def __init__(self, port):
        self.port = port

    def raw(self, target, method="GET", host="localhost", extra="", version="HTTP/1.1"):
        """Status and everything that came back."""
        with closing(socket.create_connection(("127.0.0.1", self.port), 30)) as connection:
            head = f"{method} ".encode() + (target if isinstance(target, bytes) else target.encode()) + f" {version}\r\n".encode()
            connection.sendall(head + f"Host: {host}\r\n{extra}Connection: close\r\n\r\n".encode())
            reply = b""
            while part := connection.recv(1 << 16):
                reply += part
        return (int(reply.split(b" ", 2)[1]) if reply else 0), reply

    def get(self, path, params=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(connection):
            connection.request("GET", path, headers={"Host": "localhost"})
            reply = connection.getresponse()
            return Reply(reply.status, reply.read())


class Reply:
    def __init__(self, status_code, content):
        self.status_code, self.content = status_code, content

    def json(self):
        return json.loads(self.content)


@pytest.fixture(scope="module")
def served(made):
    with running(make_app(made / "out", [made / "slides"], PAGE)) as port:
        yield Asking(port)


def attempts(made):
    """Ways to a file that nobody may read: one in the folder's parent, and one of the system."""
    secret = "slides/damaged.svs"
    targets = []
    for start in (
        "/",
        "/page/",
        "/api/results/",
        "/api/results/KEY/",
        "/api/results/KEY/tiles/",
        "/api/results/KEY/tiles/slide/",
        "/api/studies/",
    ):
        for up in ("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%252f", "..%c0%af", "..\\", "..%5c", "%uff0e%uff0e/", ".%00./", "....//"):
            targets += [start + up * depth + secret for depth in (1, 2, 6)]
            targets.append(start + up * 12 + "etc/passwd")
        targets += [
            start + str(made / secret),
            start + "%2f" + str(made / secret)[1:].replace("/", "%2f"),
            start + "file://" + str(made / secret),
        ]
        targets += [start + "index.html%00.js", start + "good/nuclei.geojson.gz", start + "out/good/run.json", start + "run.json"]
    targets += [
        f"{made / secret}",
        f"//{made / secret}",
        f"file://{made / secret}",
        f"http://localhost{made / secret}",
        "*",
        "/page/../page/main.js",
    ]
    return targets


def test_no_path_leads_to_a_file(served, made):
    key = key_of(served, "good")
    described(served, key)
    for target in attempts(made):
        status, reply = served.raw(target.replace("KEY", key))
        assert status in (400, 404), target
        assert WORDS.encode() not in reply, target
        assert b"root:" not in reply, target
        assert str(made).encode() not in reply.replace(target.encode(), b""), target
    for target in (b"/\x00", b"/\xff\xfe", b"/page/\r\nX: y", b"/" + b"a" * 100_000, b"/page/" + b"%41" * 20_000):
        status, reply = served.raw(target)
        assert status in (0, 400, 404, 431)
    assert served.get("/page/main.js").content == b"//"


def test_tiles_that_are_not_there(served):
    key = key_of(served, "good")
    described(served, key)
    huge = "9" * 400
    bad = ["-1", "99", huge, "1e3", "0x1", "1.5", "NaN", "", "%20", "१", "--1", "9" * 5000]
    for layer in ("slide", "objects", "tissue", "heat-0"):
        for number in bad:
            for place in (f"{number}/0/0", f"11/{number}/0", f"11/0/{number}"):
                assert served.raw(f"/api/results/{key}/tiles/{layer}/{place}".encode())[0] in (400, 404), place
    for layer in ("heat-1", "heat-", "heat-00", "heat--1", "nuclei.geojson", "x" * 300, "%2e%2e"):
        assert served.raw(f"/api/results/{key}/tiles/{layer}/11/0/0")[0] == 404
    assert served.get(f"/api/results/{key}/tiles/slide/11/0/0").status_code == 200


def test_foreign_hosts_origins_and_methods(served):
    assert served.raw("/api/results", host="evil.example")[0] == 403
    assert served.raw("/api/results", extra="Origin: http://evil.example\r\n")[0] == 403
    assert served.raw("/api/results", extra="Host: evil.example\r\n")[0] in (400, 403)
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "FOO"):
        status, reply = served.raw("/api/results", method)
        assert status == 405
        assert b"access-control" not in reply.lower()
    status, reply = served.raw("/api/results", "POST", extra="Content-Length: 1000000\r\n")
    assert status == 405
    status, reply = served.raw("/api/results", "HEAD")
    assert status == 200
    assert reply.endswith(b"\r\n\r\n")
    assert b"\r\nserver:" not in reply.lower()
    status, reply = served.raw("/api/results", extra="Connection: Upgrade\r\nUpgrade: websocket\r\n")
    assert status == 200  # as an ordinary request: there are no web sockets here


def test_64_at_once_are_all_answered_and_alike(served):
    key = key_of(served, "good")
    described(served, key)
    places = [(layer, 11, x, y) for layer in ("slide", "heat-0", "tissue", "objects") for x in (0, 1) for y in (0, 1)]
    with ThreadPoolExecutor(64) as pool:
        replies = list(pool.map(lambda place: served.get("/api/results/{}/tiles/{}/{}/{}/{}".format(key, *place)), places * 4))
    assert {reply.status_code for reply in replies} == {200}
    for number, place in enumerate(places):
        assert len({reply.content for reply in replies[number :: len(places)]}) == 1, place
    assert max(len(reply.content) for reply in replies) < 2_000_000


STARTS = [
    b"",
    b"G",
    b"GET / HTTP/1.1\r\nHost: local",
    b"POST /api/results HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab",
]


@contextmanager
def half_open(port, count):
    """Visitors who began and do not go on."""
    with ExitStack() as stack:
        waiting = [stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), 300))) for _ in range(count)]
        for number, connection in enumerate(waiting):
            connection.sendall(STARTS[number % len(STARTS)])
        yield waiting


def test_200_half_open_visitors_do_not_block_others(served):
    key = key_of(served, "good")
    described(served, key)
    with half_open(served.port, 200), ThreadPoolExecutor(64) as pool:
        found = list(pool.map(lambda _: served.get(f"/api/results/{key}/tiles/slide/11/0/0").status_code, range(64)))
    assert found == [200] * 64
    assert served.get("/").content == b"<p>page"


def test_half_open_visitors_are_sent_away(served, monkeypatch):
    monkeypatch.setattr(serve, "_PATIENCE", 0.5)
    with half_open(served.port, 8) as waiting:
        for connection in waiting:
            with suppress(ConnectionResetError):
                while connection.recv(1 << 16):
                    pass  # a refusal perhaps, and then the end; without one this would time out
    monkeypatch.undo()
    assert served.get("/").content == b"<p>page"


def test_more_connections_than_allowed(made, monkeypatch):
    monkeypatch.setattr(serve, "_CONNECTIONS", 20)
    with running(make_app(made / "out", [made / "slides"], PAGE)) as port:
        asking = Asking(port)
        with half_open(port, 30):
            assert asking.raw("/")[0] == 503
        while (status := asking.raw("/")[0]) == 503:  # until it has seen that they are gone
            time.sleep(0.01)
        assert status == 200


def test_the_token_is_not_logged(made, caplog, capfd):
    with caplog.at_level(logging.DEBUG), running(make_app(made / "out", (), PAGE, token=TOKEN)) as port:
        asking = Asking(port)
        assert asking.raw("/")[0] == 403
        assert asking.raw(f"/?token={TOKEN}")[0] == 303
        assert asking.raw("/", extra=f"Cookie: dsfcnn={TOKEN}\r\n")[0] == 200
        assert asking.raw(f"/\x01?token={TOKEN}")[0] == 400
    said = capfd.readouterr()
    assert TOKEN not in caplog.text + said.out + said.err


def test_a_port_that_is_taken(refused):
    with closing(serve._listen("127.0.0.1", None)) as first:
        with refused(UsageError, "--port"):
            serve._listen("127.0.0.1", first.getsockname()[1])
        with closing(serve._listen("127.0.0.1", None)) as second:
            assert second.getsockname()[1] != first.getsockname()[1]
    with refused(UsageError, "--host"):
        serve._listen("no such host.example", None)


def test_by_which_names_it_may_be_called():
    assert serve._hosts(None) == {"localhost", "127.0.0.1", "::1"}
    assert "lab.example" in serve._hosts("LAB.example")
    assert "*" not in serve._hosts("10.0.0.5")
    assert "*" in serve._hosts("0.0.0.0")
