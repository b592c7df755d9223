"""Page tokens: where the next page begins, opaque to clients and checked when they come back."""

import base64
import binascii

from dataserver.errors import InvalidRequestError

LONGEST_TOKEN = 1024

# Numbers of so many characters fit any column.
LONGEST_NUMBER = 18


def page_token(kind: str, after: str) -> str:
    """The token of a page of `kind` that begins behind `after`."""
    return base64.urlsafe_b64encode(f"{kind}:{after}".encode()).decode()


def page_after(kind: str, token: str, first: str) -> str:
    """What `token` says to begin behind; `first` for the empty token of a first page.

    Raises `InvalidRequestError` for a token that no page of `kind` gave.
    """
    if not token:
        return first
    try:
        text = base64.b64decode(token[:LONGEST_TOKEN].encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        text = ""
    found, colon, after = text.partition(":")
    if not colon or found != kind:
        raise InvalidRequestError(f"page_token {token[:64]!r}: give next_page_token of the answer before, or none")
    return after


def page_after_number(kind: str, token: str, first: int) -> int:
    """`page_after` for tokens that hold a number."""
    after = page_after(kind, token, str(first))
    if not after.removeprefix("-").isdecimal() or len(after) > LONGEST_NUMBER:
        raise InvalidRequestError(f"page_token {token[:64]!r}: give next_page_token of the answer before, or none")
    return int(after)
