"""Which names a server answers to, and whose pages may ask it.

A browser sends requests to this machine for any page that it shows. A page of another site must not
use that, nor one whose name was made to point here after it was loaded (DNS rebinding): the first
tells on itself in ``Origin`` and ``Sec-Fetch-Site``, the second in ``Host``. A program that is no
browser sends neither of the first two.
"""

from collections.abc import Iterable

from starlette.types import Scope

from dcnn.serve.refusals import Refusal

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Hosts:
    """The names of a server.

    Args:
        allowed: names that it has besides its address, as behind a proxy; its page may be there.
        own: what else a request may call it; anything if None.
    """

    def __init__(self, allowed: Iterable[str] = (), own: Iterable[str] | None = None) -> None:
        self._allowed = frozenset(_bracketed(name.lower()) for name in allowed)
        self._own = None if own is None else frozenset(_bracketed(name.lower()) for name in own)

    def check(self, scope: Scope, *, from_anywhere: bool) -> None:
        """Refuse a request to another name or, unless ``from_anywhere``, of another site's page.

        Raises:
            Refusal: which of both.
        """
        host = origin = ""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value.decode("latin-1").lower()
                if self._own is not None and _name(host) not in self._own | self._allowed:
                    raise Refusal(
                        421,
                        "this server does not go by that name; if it should, start it with "
                        "--allow-host NAME",
                    )
            elif name == b"origin":
                origin = value.decode("latin-1").lower()
            elif name == b"sec-fetch-site" and value == b"cross-site" and not from_anywhere:
                raise _from_elsewhere()
        if origin and not from_anywhere:
            asking = origin.rpartition("://")[2]
            if asking != host and _name(asking) not in self._allowed:
                raise _from_elsewhere()


def _from_elsewhere() -> Refusal:
    return Refusal(
        403,
        "pages of another site may not ask this server; if the name is its own, start it with "
        "--allow-host NAME",
    )


def _bracketed(name: str) -> str:
    """An IPv6 address as it stands in ``Host``."""
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _name(host: str) -> str:
    """The name in ``NAME``, ``NAME:PORT``, ``[ADDRESS]`` or ``[ADDRESS]:PORT``."""
    end = host.rfind(":", host.rfind("]") + 1)
    return host if end < 0 else host[:end]
