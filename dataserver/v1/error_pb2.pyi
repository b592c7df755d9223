from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_REQUEST: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_SPEC: _ClassVar[ErrorReason]
    ERROR_REASON_RUN_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_STORE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_OUT_OF_RANGE: _ClassVar[ErrorReason]
    ERROR_REASON_VERSION_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_RUN_CONFLICT: _ClassVar[ErrorReason]
    ERROR_REASON_STALE_ATTEMPT: _ClassVar[ErrorReason]
    ERROR_REASON_ATTEMPT_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_ATTEMPT_ALIVE: _ClassVar[ErrorReason]
    ERROR_REASON_HOLDER_FENCED: _ClassVar[ErrorReason]
    ERROR_REASON_FOREIGN_CURSOR: _ClassVar[ErrorReason]
    ERROR_REASON_ALREADY_COMMITTED: _ClassVar[ErrorReason]
    ERROR_REASON_PLAN_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_STORE_REFUSED: _ClassVar[ErrorReason]
    ERROR_REASON_STORE_DAMAGED: _ClassVar[ErrorReason]
    ERROR_REASON_CHECKSUM_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_WAIT_EXPIRED: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_CONFIG: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
    ERROR_REASON_FAILED_PRECONDITION: _ClassVar[ErrorReason]
    ERROR_REASON_OUTDATED_PLAN: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_REQUEST: ErrorReason
ERROR_REASON_INVALID_SPEC: ErrorReason
ERROR_REASON_RUN_NOT_FOUND: ErrorReason
ERROR_REASON_STORE_NOT_FOUND: ErrorReason
ERROR_REASON_OUT_OF_RANGE: ErrorReason
ERROR_REASON_VERSION_NOT_FOUND: ErrorReason
ERROR_REASON_RUN_CONFLICT: ErrorReason
ERROR_REASON_STALE_ATTEMPT: ErrorReason
ERROR_REASON_ATTEMPT_MISMATCH: ErrorReason
ERROR_REASON_ATTEMPT_ALIVE: ErrorReason
ERROR_REASON_HOLDER_FENCED: ErrorReason
ERROR_REASON_FOREIGN_CURSOR: ErrorReason
ERROR_REASON_ALREADY_COMMITTED: ErrorReason
ERROR_REASON_PLAN_MISMATCH: ErrorReason
ERROR_REASON_STORE_REFUSED: ErrorReason
ERROR_REASON_STORE_DAMAGED: ErrorReason
ERROR_REASON_CHECKSUM_MISMATCH: ErrorReason
ERROR_REASON_UNAVAILABLE: ErrorReason
ERROR_REASON_WAIT_EXPIRED: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_INVALID_CONFIG: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
ERROR_REASON_FAILED_PRECONDITION: ErrorReason
ERROR_REASON_OUTDATED_PLAN: ErrorReason
