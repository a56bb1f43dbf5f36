"""Connections that say nothing, or say it too slowly, are closed; and their number is bounded.

uvicorn waits for a request's head as long as it takes. A body has a time limit of its own
(``dcnn.serve.bodies``), and so has the pause between two requests.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_SECONDS = 10.0  # for a request's head to arrive
CONNECTIONS = 1000  # of a worker


class PromptProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's own protocol, and a look now and then whether there is a request at all."""

    _look_again: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Somebody has come."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
            return
        self._look_again = self.loop.call_later(HEAD_SECONDS, self._look, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """They have gone."""
        if self._look_again is not None:
            self._look_again.cancel()
        super().connection_lost(exc)

    def _look(self, before: Any) -> None:
        """Close it if nothing was asked since the last look, and nothing is being answered.

        Args:
            before: the request that had been answered by then; None before the first.
        """
        latest = self.cycle
        answered = latest is None or latest.response_complete
        if answered and latest is before:
            self.transport.close()
            return
        seen = latest if answered else self  # no request is ever this
        self._look_again = self.loop.call_later(HEAD_SECONDS, self._look, seen)
