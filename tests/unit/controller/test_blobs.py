"""The cache of large payloads."""

from perdure.controller.payloads import Cache


def test_the_cache_keeps_the_most_recently_used_entries() -> None:
    cache = Cache(max_bytes=30)
    for name in ("a", "b", "c"):
        cache.put("shop", name, b"x" * 10)
    assert cache.get("shop", "a") is not None
    cache.put("shop", "d", b"x" * 10)
    assert [name for name in "abcd" if cache.get("shop", name) is not None] == ["a", "c", "d"]


def test_the_namespace_with_the_most_bytes_is_evicted_first() -> None:
    cache = Cache(max_bytes=100)
    cache.put("quiet", "a", b"x" * 20)
    for number in range(50):
        cache.put("busy", str(number), b"x" * 20)
    assert cache.get("quiet", "a") == b"x" * 20
    assert cache.get("busy", "49") == b"x" * 20
    assert cache.get("busy", "0") is None


def test_a_repeated_entry_counts_once_and_a_too_large_one_is_not_cached() -> None:
    cache = Cache(max_bytes=30)
    for _ in range(5):
        cache.put("shop", "a", b"x" * 20)
    assert cache.get("shop", "a") == b"x" * 20
    cache.put("shop", "b", b"x" * 31)
    assert cache.get("shop", "b") is None
    cache.put("shop", "c", b"x" * 30)
    assert cache.get("shop", "c") == b"x" * 30
