"""Replies that were made before, up to a number of bytes; one that is being made is waited for, not made twice."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future

_KEY = 500  # bytes that an entry takes besides its value, about


class Cache:
    """The least recently used is dropped first.

    Args:
        limit: bytes of all values together.
    """

    def __init__(self, limit: int):
        self.limit, self.size = limit, 0
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._made: dict[Hashable, Future[bytes]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            future = self._made.get(key)
            if mine := future is None:
                future = self._made[key] = Future()
        if not mine:
            return future.result()
        try:
            value = make()
            future.set_result(value)
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._made[key]
        self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: bytes) -> None:
        with self._lock:
            self._kept[key] = value
            self.size += len(value) + _KEY
            while self.size > self.limit:
                self.size -= len(self._kept.popitem(last=False)[1]) + _KEY
