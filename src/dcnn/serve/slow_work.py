"""Work that takes many milliseconds: in threads, so that single predictions need not wait for it.

The places are counted. When none is left the next one is refused at once, since a queue without an
end answers nobody in time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from dcnn.serve.refusals import overloaded

P = ParamSpec("P")
T = TypeVar("T")


class SlowWork:
    """Threads of a worker, and the places in front of them.

    Args:
        threads: how many.
        places: for what they do and what waits for them, together.
    """

    def __init__(self, threads: int, places: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="slow")
        self._places = places
        self._taken = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place for as long as something is to be done.

        Raises:
            Refusal: there is none.
        """
        if self._taken >= self._places:
            raise overloaded()
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    async def call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do it in a thread, in the place that the caller holds."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(work, *args, **kwargs))

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Take a place and do it.

        Raises:
            Refusal: there is no place.
        """
        async with self.place():
            return await self.call(work, *args, **kwargs)
