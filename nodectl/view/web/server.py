"""The addresses of the page, and the page's listening socket."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from nodectl.client.command import Failed
from nodectl.model.number import whole
from nodectl.view.web.connections import MOST, Connection
from nodectl.view.web.guard import HOSTS, Guard
from nodectl.view.web.pages import Pages

_STATIC = os.path.join(os.path.dirname(__file__), "static")
_LARGEST = 2**32
_SVG = "image/svg+xml"


def application(pages: Pages, token: str) -> Starlette:
    """Return the application: the page and the data."""
    one_at_a_time = CapacityLimiter(1)  # threads: a service that hangs stops no request for the page

    async def told(work: Callable[[], Any]) -> Any:
        try:
            return await to_thread.run_sync(work, limiter=one_at_a_time)
        except Failed as failed:
            raise HTTPException(404, str(failed)) from None

    async def view(_request: Request) -> Response:
        return JSONResponse(await told(pages.view))

    async def machine(_request: Request) -> Response:
        return Response(await told(pages.machine), media_type=_SVG)

    async def launch(request: Request) -> Response:
        job, step = _number(request, "job"), _number(request, "step")
        return Response(await told(partial(pages.launch, job, step)), media_type=_SVG)

    async def explain(request: Request) -> Response:
        step = _number(request, "step") if "step" in request.query_params else None
        job = str(_number(request, "job")) if step is not None else request.query_params.get("job", "")[:64]
        return PlainTextResponse(await told(partial(pages.explanation, job, step)))

    async def output(request: Request) -> Response:
        step = _number(request, "step") if "step" in request.query_params else None
        return PlainTextResponse(await told(partial(pages.output, _number(request, "job"), step)))

    async def ended(_request: Request) -> Response:
        return JSONResponse(await told(pages.ended))

    async def report(_request: Request) -> Response:
        return Response(await told(pages.report), media_type=_SVG)

    answers = {
        "view": view, "machine": machine, "launch": launch, "explain": explain, "output": output, "ended": ended,
        "report": report,
    }  # fmt: skip
    files = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css"}
    return Starlette(
        routes=[
            *(Route(f"/api/{name}", answer) for name, answer in answers.items()),
            *(Route(path, _file(name)) for path, name in files.items()),
        ],
        middleware=[
            Middleware(Guard, token=token),
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
        ],
    )


def _file(name: str) -> Callable[[Request], Any]:
    async def answer(_request: Request) -> Response:
        return FileResponse(os.path.join(_STATIC, name))

    return answer


def _number(request: Request, name: str) -> int:
    number = whole(request.query_params.get(name, ""), _LARGEST)
    if number is None:
        raise HTTPException(400, f"{name} is no number")
    return number


def listen(address: str) -> socket.socket:
    """Return a socket at unix:PATH, for the owner alone, or at a port of 127.0.0.1. Raises Failed."""
    kind, _, rest = address.partition(":")
    try:
        if kind == "unix" and rest:
            return _listen_unix(rest)
        host, _, port = address.rpartition(":")
        number = whole(port, 65535)
        if host != "127.0.0.1" or number is None:
            raise Failed(
                f"--listen {address[:80]!r}: it is unix:PATH or 127.0.0.1:PORT, nothing that others could reach"
            )
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, number))
        sock.listen(MOST)  # before the address is printed: until then another user could take the port
    except OSError as error:
        raise Failed(f"--listen {address[:80]!r}: {error.strerror or error}") from None
    return sock


def _listen_unix(path: str) -> socket.socket:
    _remove_dead(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # no other user may open it, not even for a moment
    try:
        sock.bind(path)
    finally:
        os.umask(before)
    return sock


def _remove_dead(path: str) -> None:
    """Remove the socket of a killed server."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            try:
                asked.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)


def serve(pages: Pages, token: str, sock: socket.socket) -> None:
    """Serve the page until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        application(pages, token),
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http=Connection,
        backlog=MOST,  # connections waiting for accept(2)
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[sock])
