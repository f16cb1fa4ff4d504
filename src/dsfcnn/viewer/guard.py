"""Who may ask: a page of this server in a browser of this machine, or somebody who has the token. All else is refused before any route.

A foreign page can make a browser send requests here, and a foreign name can be made to point here (DNS rebinding); so the Host, the
Origin and what the browser says about the request (Sec-Fetch-Site) must all be this server's own.
"""

import hmac
import ipaddress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_METHODS = ("GET", "HEAD")
_EMPTY = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"  # of the one style element that is allowed: an empty one
_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; script-src 'self'; style-src 'self' {_EMPTY}; img-src 'self' blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Stands before the application.

    Args:
        hosts: names and addresses by which this server may be called, without port; with "*", any address in numbers too.
        token: what a visitor must know; None where loopback is protection enough.
        cookie: name under which the browser keeps the token.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] = LOOPBACK, token: str | None = None, cookie: str = "dsfcnn"):
        self.app, self.hosts, self.token, self.cookie = app, hosts, token, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (self.app if refusal is None else refusal)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["type"] != "http" or scope["method"] not in _METHODS:
            return _refuse(405, "only GET and HEAD are answered", {"allow": ", ".join(_METHODS)})
        headers = Headers(scope=scope)
        if not self._is_own_host(headers.getlist("host")):
            return _refuse(403, "this server is not called that; use the address that 'dsfcnn view' printed")
        if any(origin != f"http://{headers['host']}" for origin in headers.getlist("origin")) or _is_foreign(headers):
            return _refuse(403, "other pages may not use this server")
        return None if self.token is None else self._without_token(scope, headers, self.token)

    def _is_own_host(self, stated: list[str]) -> bool:
        if len(stated) != 1:
            return False
        name, port = _split(stated[0])
        if port is not None and not (port.isdecimal() and port.isascii()):
            return False
        return name in self.hosts or ("*" in self.hosts and _is_address(name))

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        """None for those who have it. One who brings it in the address gets it as a cookie and an address without it."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", []) if scope["path"] == "/" else []
        if len(given) == 1 and _equal(given[0], token):
            response = RedirectResponse("/", 303)
            response.set_cookie(self.cookie, token, httponly=True, samesite="strict")
            return response
        if _equal(_cookie(headers.get("cookie", ""), self.cookie), token):
            return None
        return _refuse(403, "this server asks for a token; use the address that 'dsfcnn view' printed")


def _split(host: str) -> tuple[str, str | None]:
    """Name and port.

    >>> _split("[::1]:80"), _split("LOCALHOST:80"), _split("a.b")
    (('::1', '80'), ('localhost', '80'), ('a.b', None))
    """
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name.lower(), rest[1:] if rest.startswith(":") else None if bracket and not rest else "no port"
    name, colon, port = host.partition(":")
    return name.lower(), port if colon else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_foreign(headers: Headers) -> bool:
    """Whether the browser says that another site is behind the request; following a link to here is allowed."""
    return headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and headers.get("sec-fetch-mode") != "navigate"


def _cookie(text: str, name: str) -> str:
    try:
        found = SimpleCookie(text).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _equal(given: str, token: str) -> bool:
    """In a time that does not tell how much was right."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())


def _refuse(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"message": message}, status, headers)
