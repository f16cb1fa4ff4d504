"""The routes of the viewer. A request names a result by its key, a layer, and a place in numbers; it never names a file."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp

from dsfcnn.errors import DsfcnnError
from dsfcnn.slides.image import MAX_PIXELS
from dsfcnn.slides.source import shown
from dsfcnn.viewer import study
from dsfcnn.viewer.cache import Cache
from dsfcnn.viewer.drawing import png
from dsfcnn.viewer.folder import Contents, Study, look
from dsfcnn.viewer.guard import LOOPBACK, Guard
from dsfcnn.viewer.opened import FINER, Opened
from dsfcnn.viewer.originals import Originals

_THREADS = 8  # that make tiles; what comes meanwhile waits
_CACHE = 128 << 20  # bytes of tiles
_OPEN = 3  # results whose slides and objects are held; a million objects take about 300 MB
_KEEP = "private, max-age=86400, immutable"  # keys are new with every start, so a tile of a key never changes


@dataclass
class Viewed:
    """The folder that is shown, and what of it is open."""

    contents: Contents
    originals: Originals
    root: Path
    max_pixels: int
    cache: Cache = field(default_factory=lambda: Cache(_CACHE))
    _opened: OrderedDict[str, Opened] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def opened(self, key: str) -> Opened:
        """A result, opened if it is not; the one that was looked at longest ago is closed."""
        with self._lock:
            if key not in self._opened:
                result = next((one for one in self.contents.results if one.key == key), None)
                if result is None:
                    raise _missing("there is no such result; choose one of the list")
                self._opened[key] = Opened(result, self.originals, self.max_pixels)
                if len(self._opened) > _OPEN:
                    self._opened.popitem(last=False)[1].close()
            self._opened.move_to_end(key)
            return self._opened[key]

    def study(self, key: str) -> Study:
        found = next((one for one in self.contents.studies if one.key == key), None)
        if found is None:
            raise _missing("there is no such study; choose one of the list")
        return found

    def tile(self, key: str, layer: str, level: int, x: int, y: int) -> tuple[str, bytes] | None:
        """Media type and bytes; None where there is no such tile."""
        opened = self.opened(key)
        square = opened.pyramid.square(level, x, y, FINER if layer == "objects" else 0)
        draw = opened.layers().get(layer)
        if square is None or draw is None:
            return None

        def make() -> bytes:
            kind, body = draw(square)
            return kind.encode() + b"\n" + body

        kind, _, body = self.cache.get((key, layer, level, x, y), make).partition(b"\n")
        return kind.decode(), body

    def close(self) -> None:
        for opened in self._opened.values():
            opened.close()


def make_app(
    out: Path,
    slides: Sequence[Path] = (),
    files: dict[str, tuple[str, bytes]] | None = None,
    *,
    hosts: frozenset[str] = LOOPBACK,
    token: str | None = None,
    cookie: str = "dsfcnn",
    max_pixels: int = MAX_PIXELS,
) -> ASGIApp:
    """The guarded application for an output folder.

    Args:
        slides: where the slides and images lie that were analysed.
        files: the page, from ``page_files``.
        hosts, token, cookie: see :class:`~dsfcnn.viewer.guard.Guard`.
    """
    viewed = Viewed(look(out), Originals(slides), out, max_pixels)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        yield
        viewed.close()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan, redirect_slashes=False)
    app.include_router(_page(files or {}))
    app.include_router(_results(viewed), prefix="/api")
    app.include_router(_studies(viewed), prefix="/api")

    @app.exception_handler(DsfcnnError)
    def mistake(request: Request, error: DsfcnnError) -> JSONResponse:
        return JSONResponse({"message": str(error).replace(shown(viewed.root), viewed.contents.name)}, 422)

    @app.exception_handler(RequestValidationError)
    def nonsense(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"message": "there is no such place"}, 404)

    @app.exception_handler(StarletteHTTPException)
    def refused(request: Request, error: StarletteHTTPException) -> JSONResponse:
        return JSONResponse({"message": error.detail}, error.status_code)

    return Guard(app, hosts, token, cookie)


def _missing(message: str) -> HTTPException:
    return HTTPException(404, message)


def _page(files: dict[str, tuple[str, bytes]]) -> APIRouter:
    router = APIRouter()

    @router.api_route("/", methods=["GET", "HEAD"])
    async def index() -> Response:
        return _file("index.html")

    @router.api_route("/page/{name}", methods=["GET", "HEAD"])
    async def page(name: str) -> Response:
        return _file(name)

    def _file(name: str) -> Response:
        if name not in files:
            raise _missing("there is no such page")
        kind, body = files[name]
        return Response(body, media_type=kind)

    return router


def _results(viewed: Viewed) -> APIRouter:
    router = APIRouter()

    @router.api_route("/results", methods=["GET", "HEAD"])
    def results() -> dict[str, Any]:
        contents = viewed.contents
        return {
            "folder": contents.name,
            "results": [
                {
                    "key": one.key,
                    "name": shown(one.name),
                    "task": one.record.settings.task,
                    "objects": one.record.counts.objects,
                    "tissue": one.record.counts.tissue_mm2,
                }
                for one in contents.results
            ],
            "studies": [{"key": one.key, "name": one.name} for one in contents.studies],
            "failures": [{"name": name, "reason": reason} for name, reason in contents.failures.items()],
        }

    @router.api_route("/results/{key}", methods=["GET", "HEAD"])
    def result(key: str) -> dict[str, Any]:
        return viewed.opened(key).describe()

    @router.api_route("/results/{key}/tiles/{layer}/{level}/{x}/{y}", methods=["GET", "HEAD"])
    def tile(key: str, layer: str, level: int, x: int, y: int) -> Response:
        found = viewed.tile(key, layer, level, x, y)
        if found is None:
            raise _missing("there is no such tile")
        kind, body = found
        return Response(body, media_type=kind, headers={"cache-control": _KEEP})

    @router.api_route("/results/{key}/at", methods=["GET", "HEAD"])
    def at(key: str, x: float = Query(allow_inf_nan=False), y: float = Query(allow_inf_nan=False)) -> dict[str, Any]:
        opened = viewed.opened(key)
        inside = 0 <= x <= opened.pyramid.width and 0 <= y <= opened.pyramid.height
        number = opened.objects.at(x, y) if opened.objects is not None and inside else None
        return {"object": None if number is None else opened.object(number + 1)}

    @router.api_route("/results/{key}/objects/{number}", methods=["GET", "HEAD"])
    def one_object(key: str, number: int) -> dict[str, Any]:
        found = viewed.opened(key).object(number)
        if found is None:
            raise _missing("there is no object of this number")
        return {"object": found}

    @router.api_route("/results/{key}/histograms/{column}", methods=["GET", "HEAD"])
    def histogram(key: str, column: int) -> dict[str, Any]:
        found = viewed.opened(key).histogram(column)
        if found is None:
            raise _missing("there is no such measurement")
        return found

    return router


def _studies(viewed: Viewed) -> APIRouter:
    router = APIRouter()

    @router.api_route("/studies/{key}", methods=["GET", "HEAD"])
    def describe(key: str) -> dict[str, Any]:
        return study.describe(viewed.study(key))

    @router.api_route("/studies/{key}/strips/{row}", methods=["GET", "HEAD"])
    def strip(key: str, row: int) -> Response:
        found = study.strip(viewed.study(key), row)
        if found is None:
            raise _missing("there is no such row of frames")
        return Response(png(found), media_type="image/png", headers={"cache-control": _KEEP})

    return router
