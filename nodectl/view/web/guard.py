"""The guard of the page: access only with the token, and only from a page of this very address.

Every user of the machine can connect to a port of 127.0.0.1, and a hostile page in the user's own browser can send
requests there. So every answer with data requires a token, which is no cookie: browsers send cookies to every port of
the machine. The page has the token from the part of its address behind `#`, which browsers send to no server. A name
that was made to lead here (DNS rebinding) is refused, answers cannot be framed or read by other pages, and the page
loads nothing from elsewhere.
"""

from __future__ import annotations

import secrets

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ["127.0.0.1", "localhost"]
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob:; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
OPEN = ("/", "/page.js", "/page.css")  # the page itself holds no data


def new_token() -> str:
    """Return an unguessable token."""
    return secrets.token_urlsafe(32)


class Guard:
    """A wrapper of the application: requires the token for all but the page itself, and adds headers to all answers."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = f"Bearer {token}".encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        app = self._app if scope["path"] in OPEN or self._has_token(scope) else _REFUSAL
        await app(scope, receive, guarded)

    def _has_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and secrets.compare_digest(given[0], self._token)


_REFUSAL = PlainTextResponse(
    "the address that `nodectl web` has printed is needed, with all that is behind its #\n", 401
)
