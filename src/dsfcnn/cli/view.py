"""``dsfcnn view``: results in the browser."""

from pathlib import Path
from typing import Annotated

import typer


def view(
    out: Annotated[Path, typer.Argument(readable=False, help="Folder that predict or equivariance has written.")],
    slides: Annotated[
        list[Path] | None, typer.Option(help="What was analysed, or its folder; may be given several times. By default the current folder.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on; 8765, or any free one, by default.")] = None,
    host: Annotated[
        str | None, typer.Option(help="Let other machines see the results at this address; a token is then part of the address.")
    ] = None,
    token: Annotated[bool, typer.Option("--token", help="Ask for a token here too, on a machine that others use.")] = False,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="First get OpenSeadragon, which the page needs, from PyPI, unless it is there: once, with pip.")
    ] = False,
    max_pixels: Annotated[int, typer.Option(min=1, help="Refuse larger plain images.")] = 150_000_000,
) -> None:
    """Show results and slides in the browser, at an address of this machine only."""
    from dsfcnn.errors import UsageError

    try:
        from dsfcnn.viewer.serve import view as serve
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("anyio", "fastapi", "h11", "starlette", "uvicorn"):
            raise
        raise UsageError("the viewer needs FastAPI and uvicorn; get them with: pip install 'dsfcnn[viewer]'") from error

    if fetch:
        from dsfcnn.viewer import openseadragon

        openseadragon.fetch()

    def tell(address: str) -> None:
        print(f"{address}\nstop with Ctrl+C", flush=True)

    serve(out, slides or [Path()], port, host, token, max_pixels, tell)
