"""What gRPC reports on its own, without a reason of ours."""

import grpc
import pytest

from dataserver.errors import InternalError, UnavailableError
from dataserver.wire.status import error_of


class Broken(grpc.RpcError):
    """A call as a channel raises it."""

    def __init__(self, code):
        super().__init__()
        self._code = code

    def code(self):
        return self._code

    def details(self):
        return "Socket closed"

    def trailing_metadata(self):
        return ()


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
def test_a_call_that_a_server_broke_off_as_it_ended_may_be_tried_again(code):
    assert type(error_of(Broken(code))) is UnavailableError


def test_a_fault_of_another_kind_names_its_code():
    error = error_of(Broken(grpc.StatusCode.INTERNAL))
    assert type(error) is InternalError
    assert "INTERNAL" in error.message
