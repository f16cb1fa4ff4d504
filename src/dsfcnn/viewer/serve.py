"""The server process: where it listens, and how much of a visitor's patience and of our own it allows."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dsfcnn.errors import UsageError
from dsfcnn.slides.image import MAX_PIXELS
from dsfcnn.viewer.assets import expect_openseadragon, page_files
from dsfcnn.viewer.guard import LOOPBACK
from dsfcnn.viewer.server import make_app

PORT = 8765  # by habit; where it is taken and none was asked for, any free one
_CONNECTIONS = 512  # at a time, below the usual limit of 1,024 open files; further ones get 503
_PATIENCE = 60  # seconds for a request from its first byte to the last of the answer
_KEEP_ALIVE = 15  # seconds that an idle connection stays
_FAREWELL = 2  # seconds to end requests when the program is stopped
_ANY = ("0.0.0.0", "::")


class PatientProtocol(H11Protocol):
    """HTTP with an end to patience: uvicorn by itself waits for ever for the rest of a request."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        self._begin()
        super().data_received(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end()

    def _begin(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(_PATIENCE, self.transport.abort)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def view(
    out: Path,
    slides: Sequence[Path],
    port: int | None,
    host: str | None,
    with_token: bool,
    max_pixels: int = MAX_PIXELS,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve a folder until the program is stopped; ``tell`` is given the address once it answers.

    Args:
        host: address or name to bind to instead of loopback; then a token is needed to see anything.
        with_token: ask for a token on loopback too, where others use this machine.
    """
    files = page_files()
    expect_openseadragon(files)
    listening = _listen(host or "127.0.0.1", port)
    bound = listening.getsockname()[1]
    token = secrets.token_urlsafe(24) if host is not None or with_token else None
    app = make_app(out, slides, files, hosts=_hosts(host), token=token, cookie=f"dsfcnn-{bound}", max_pixels=max_pixels)
    name = "localhost" if host is None else socket.gethostname() if host in _ANY else host
    address = f"http://{f'[{name}]' if ':' in name else name}:{bound}/"
    tell(address if token is None else f"{address}?token={token}")
    make_server(app).run(sockets=[listening])


def make_server(app: object) -> uvicorn.Server:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=PatientProtocol,
        ws="none",
        log_level="error",
        access_log=False,  # addresses may hold the token
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_FAREWELL,
    )
    return uvicorn.Server(config)


def _hosts(host: str | None) -> frozenset[str]:
    if host is None:
        return LOOPBACK
    own = {socket.gethostname().lower(), "*"} if host in _ANY else {host.lower()}
    return LOOPBACK | own


def _listen(host: str, port: int | None) -> socket.socket:
    for number in (PORT, 0) if port is None else (port,):
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
            found = socket.socket(family, kind, protocol)
            try:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                found.bind(place)
                found.listen(_CONNECTIONS)
            except OSError:
                found.close()
                raise
            return found
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "no such name"
            if number == PORT and port is None:
                continue
            raise UsageError(f"{host}: cannot listen on port {number} ({reason}); give another --port or --host") from error
    raise AssertionError("0 is always tried")
