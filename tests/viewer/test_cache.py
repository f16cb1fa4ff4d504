"""Nothing is made twice, and what is kept stays within its limit."""

import threading

import pytest

from dsfcnn.viewer.cache import _KEY, Cache


def test_the_least_recently_used_goes_first():
    cache, made = Cache(3 * (100 + _KEY)), []

    def ask(key):
        return cache.get(key, lambda: made.append(key) or bytes(100))

    for key in "abcadbc":
        ask(key)
    assert made == ["a", "b", "c", "d", "b", "c"]  # d pushed b out, b then c, c then a
    assert cache.size == 3 * (100 + _KEY)


def test_a_value_beyond_the_limit_is_not_kept():
    cache = Cache(1000)
    assert cache.get("a", lambda: bytes(2000)) == bytes(2000)
    assert cache.size == 0


def test_who_asks_meanwhile_waits_for_the_same():
    cache, made, begun, go = Cache(10_000), [], threading.Event(), threading.Event()

    def make():
        begun.set()
        go.wait(10)
        made.append(1)
        return b"value"

    found = []
    threads = [threading.Thread(target=lambda: found.append(cache.get("a", make))) for _ in range(8)]
    threads[0].start()
    begun.wait(10)
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert found == [b"value"] * 8
    assert made == [1]


def test_a_failure_is_not_remembered():
    cache = Cache(10_000)

    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get("a", fail)
    assert cache.get("a", lambda: b"yes") == b"yes"
