"""A status arrives whole: its headers stay below what peers accept, whatever the error says."""

import base64
from urllib.parse import quote

import pytest

from dataserver.errors import InvalidRequestError
from dataserver.wire.status import status_of

# gRPC's soft limit on the headers of one status.
HEADER_BYTES = 8192


@pytest.mark.parametrize("text", ["x", "%", "é", "\u4e2d", "\U0001f4a5", "\n"])
def test_a_long_message_and_its_details_fit_the_headers(text: str):
    details = {f"detail_{number}": text * 5000 for number in range(9)}
    _, message, ((_, packed),) = status_of(InvalidRequestError(text * 5000, **details))
    assert len(quote(message)) + len(base64.b64encode(packed)) + 256 < HEADER_BYTES
    assert message.startswith(text)
    assert message.endswith("…")


def test_a_message_that_fits_stays_as_it_is():
    _, message, _ = status_of(InvalidRequestError("rank 中 is none"))
    assert message == "rank 中 is none"


def test_text_that_is_no_unicode_travels_nevertheless():
    _, message, _ = status_of(InvalidRequestError("lone \udc80"))
    assert message == "lone ?"
