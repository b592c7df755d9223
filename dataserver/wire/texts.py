"""Texts of any length in fields that have a limit."""


def shortened(text: str, limit: int, *, ending: str = "…") -> str:
    """`text`, or as much of its beginning as fits `limit` bytes of UTF-8 with `ending`, which tells that it was cut."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - len(ending.encode())].decode(errors="ignore") + ending
