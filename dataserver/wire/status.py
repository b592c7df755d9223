"""Errors as gRPC statuses, and back: the client raises the class that the server raised.

A status carries `google.rpc.ErrorInfo` (https://google.aip.dev/193) with the reason and the
error's details, in the trailing metadata where gRPC's richer error model puts it.
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from dataserver.errors import (
    REASONS,
    DataServerError,
    InternalError,
    InvalidRequestError,
    StoreNotReadyError,
    UnauthenticatedError,
    UnavailableError,
    WaitExpiredError,
)
from dataserver.wire.texts import shortened

DOMAIN: Final = "dataserver"
DETAILS_KEY: Final = "grpc-status-details-bin"

# Message and details travel in HTTP/2 headers, of which peers accept 8 KiB in all; a status that
# is larger arrives as RESOURCE_EXHAUSTED, without its reason. The message stands there twice:
# percent-encoded, which may triple it, and in base64 inside the details.
MAX_MESSAGE_BYTES: Final = 1200
MAX_DETAIL_BYTES: Final = 200
MAX_DETAILS: Final = 5

# What is told to clients of others that ask for a store which is being rendered; ours know themselves.
RETRY_S: Final = 5

_BY_CLASS: Final = {reason.error: reason for reason in REASONS}
_BY_NAME: Final = {reason.name: reason for reason in REASONS}

# What gRPC itself says, without an ErrorInfo of ours.
_BY_CODE: Final[dict[grpc.StatusCode, type[DataServerError]]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    # A server that ends cancels the calls under way; our own cancellations nobody turns into errors.
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: WaitExpiredError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: InvalidRequestError,
    grpc.StatusCode.UNIMPLEMENTED: InvalidRequestError,
}


def status_of(error: DataServerError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Return status code, message and trailing metadata for an error."""
    reason = _BY_CLASS[type(error)]
    code = grpc.StatusCode[reason.status]
    message = shortened(error.message, MAX_MESSAGE_BYTES)
    details = {name: shortened(value, MAX_DETAIL_BYTES) for name, value in list(error.details.items())[:MAX_DETAILS]}
    info = ErrorInfo(reason=reason.name, domain=DOMAIN, metadata=details)
    told = [_packed(info)]
    if isinstance(error, StoreNotReadyError):
        told.append(_packed(RetryInfo(retry_delay=Duration(seconds=RETRY_S))))
    status = Status(code=code.value[0], message=message, details=told)
    return code, message, ((DETAILS_KEY, status.SerializeToString()),)


def _packed(detail: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def error_of(failed: grpc.RpcError) -> DataServerError:
    """Return the error that the server raised, or ours for what gRPC itself reports."""
    # What a channel raises is both an RpcError and a Call; the stubs do not know.
    call: Any = failed
    code: grpc.StatusCode = call.code()
    message: str = call.details() or code.name
    info = _error_info(call.trailing_metadata() or ())
    if info is not None and info.reason in _BY_NAME:
        return _BY_NAME[info.reason].error(message, **dict(info.metadata))
    return _BY_CODE.get(code, InternalError)(f"{message} [{code.name}]")


def _error_info(metadata: Sequence[tuple[str, str | bytes]]) -> ErrorInfo | None:
    for key, value in metadata:
        if key != DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            status = Status.FromString(value)
        except DecodeError:
            return None
        for detail in status.details:
            info = ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                return info
    return None
