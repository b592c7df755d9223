"""Page tokens come back as they were given, or are refused."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.errors import InvalidRequestError
from dataserver.hosting.pages import page_after, page_after_number, page_token


@given(st.text(max_size=200))
def test_a_token_comes_back_as_it_was_given(after: str) -> None:
    assert page_after("runs", page_token("runs", after), "") == after


@given(st.integers(-1, 10**18 - 1))
def test_a_number_comes_back_as_it_was_given(after: int) -> None:
    assert page_after_number("events", page_token("events", str(after)), 0) == after


def test_no_token_stands_for_the_first_page() -> None:
    assert page_after("runs", "", "first") == "first"
    assert page_after_number("events", "", -1) == -1


@given(st.text(min_size=1, max_size=3000))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="page_token"):
        page_after_number("events", text, 0)


@pytest.mark.parametrize("after", ["", "x", "1.5", "--1", "9" * 30, "٣x"])
def test_a_token_of_a_number_that_is_none_is_refused(after: str) -> None:
    with pytest.raises(InvalidRequestError):
        page_after_number("events", base64.urlsafe_b64encode(f"events:{after}".encode()).decode(), 0)


def test_a_token_of_another_list_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        page_after("runs", page_token("stores", "a"), "")
