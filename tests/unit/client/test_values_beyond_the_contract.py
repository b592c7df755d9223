"""Values that no field of the contract can hold are refused here, by their field."""

import pytest

from dataserver.client import DataClient
from dataserver.cursor import Cursor
from dataserver.errors import InvalidRequestError
from dataserver.run_spec import OrderSpec, Source
from dataserver.testing import attempt_info

HUGE = 2**63
ORDER = OrderSpec(sources=(Source(store="s"),), max_length=8)
BEGIN = {"resume": True, "world_size": 1, "dp_world_size": 1, "holder": "h"}


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda client: client.amend_run("r", HUGE, ORDER), "first_step"),
        (lambda client: client.begin_attempt("r", **BEGIN | {"world_size": 2**31}, version=1), "world_size"),
        (lambda client: client.begin_attempt("r", **BEGIN, version=HUGE), "version"),
        (lambda client: client.begin_attempt("r", **BEGIN, cursor=Cursor(order_fingerprint="f", step=HUGE)), "step"),
        (lambda client: client.get_cursor("r", HUGE), "version"),
        (lambda client: client.describe_step("r", HUGE), "step"),
        (lambda client: client.describe_step("r", 1, dp_world_size=2**31), "dp_world_size"),
        (
            lambda client: client.commit_cursor("r", attempt_info(), Cursor(order_fingerprint="f", epoch=HUGE), ""),
            "epoch",
        ),
        (lambda client: client.get_store("s", max_length=HUGE), "max_length"),
        (lambda client: client.list_samples("s", 0, HUGE), "end_row"),
        (lambda client: client.get_run("\ud800"), "run"),
        (lambda client: client.stream("r", attempt_info(HUGE), world_rank=0, dp_rank=0, next_step=1), "attempt"),
        (lambda client: client.stream("r", attempt_info(), world_rank=2**31, dp_rank=0, next_step=1), "world_rank"),
        (
            lambda client: next(client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=HUGE)),
            "next_step",
        ),
    ],
)
def test_a_value_that_its_field_cannot_hold_is_refused_without_a_server(call, field: str) -> None:
    with DataClient("127.0.0.1:1", patience_s=0.0) as client, pytest.raises(InvalidRequestError, match=rf"\.{field} "):
        call(client)
