"""Which of two versions of an object is the older one."""


def older(version: str, than: str) -> bool:
    """Whether a resourceVersion comes before another; they are numbers that grow (KEP-5504)."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
