"""Who is let in."""

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from dsfcnn.viewer.guard import LOOPBACK, Guard

TOKEN = "t0ken-of-this-test"


async def secret(scope, receive, send):
    await PlainTextResponse("secret")(scope, receive, send)


def ask(path="/", method="GET", base="http://localhost:8765", hosts=LOOPBACK, token=None, client=None, **headers):
    client = client or TestClient(Guard(secret, hosts, token), base_url=base)
    return client.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}, follow_redirects=False)


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:8765", "[::1]:8765", "LocalHost:8765", "[::1]"])
def test_own_names(host):
    assert ask(host=host).text == "secret"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.example:8765",
        "127.0.0.1.evil.example",
        "10.0.0.1:8765",
        "localhost:80@evil.example",
        "localhost:x",
        "localhost:",
        "[::1",
        "[::1]evil",
        "0.0.0.0:8765",
        "localhost:٣",
        "",
    ],
)
def test_foreign_names(host):
    reply = ask(host=host.encode())
    assert reply.status_code == 403
    assert "secret" not in reply.text


def test_two_names_at_once():
    client = TestClient(Guard(secret), base_url="http://localhost")
    reply = client.get("/", headers=[("host", "localhost"), ("host", "evil.example")])
    assert reply.status_code == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://localhost:8765", "http://localhost:9999", "http://localhost:8765.evil.example", ""]
)
def test_foreign_origins(origin):
    reply = ask(host="localhost:8765", origin=origin)
    assert reply.status_code == 403
    assert "access-control-allow-origin" not in reply.headers


def test_own_origin():
    assert ask(host="localhost:8765", origin="http://localhost:8765").text == "secret"


def test_what_browsers_say_of_other_sites():
    assert ask(sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status_code == 403
    assert ask(sec_fetch_site="same-site", sec_fetch_mode="cors").status_code == 403
    assert ask(sec_fetch_site="same-origin", sec_fetch_mode="cors").status_code == 200
    assert ask(sec_fetch_site="none").status_code == 200
    assert ask(sec_fetch_site="cross-site", sec_fetch_mode="navigate").status_code == 200  # a link that was clicked


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_other_methods(method):
    reply = ask(method=method)
    assert reply.status_code == 405
    assert reply.headers["allow"] == "GET, HEAD"
    assert "secret" not in reply.text


def test_headers_of_every_reply():
    for reply in (ask(), ask(host="evil.example"), ask(method="POST")):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "script-src 'self';" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["cache-control"] == "no-store"


def test_a_token_is_asked_for_and_moves_from_the_address_to_a_cookie():
    client = TestClient(Guard(secret, token=TOKEN, cookie="dsfcnn-8765"), base_url="http://localhost:8765")
    for path in ("/", "/api", "/?token=wrong", "/?token=", f"/?token={TOKEN}x", f"/?token={TOKEN}&token=x", f"/api?token={TOKEN}"):
        reply = ask(path, client=client)
        assert reply.status_code == 403
        assert TOKEN not in reply.text
    reply = ask(f"/?token={TOKEN}", client=client)
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ask("/api", client=client).text == "secret"  # the client keeps cookies
    client.cookies.clear()
    assert ask("/api", client=client, cookie=f"dsfcnn-8765={TOKEN[:-1]}").status_code == 403
    assert ask("/api", client=client, cookie='dsfcnn-8765=\xe9"; ;='.encode()).status_code == 403
    assert ask("/api", client=client, cookie=f"dsfcnn-8765={TOKEN}").text == "secret"


def test_a_token_does_not_open_foreign_names():
    assert ask(f"/?token={TOKEN}", token=TOKEN, host="evil.example").status_code == 403


def test_any_address_in_numbers_where_all_are_listened_on():
    hosts = LOOPBACK | {"*", "lab"}
    for host in ("10.0.0.1:80", "[fe80::1]:80", "lab:80", "localhost"):
        assert ask(hosts=hosts, host=host).status_code == 200
    for host in ("evil.example", "10.0.0.1.evil.example", "*"):
        assert ask(hosts=hosts, host=host).status_code == (200 if host == "*" else 403)
