from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class PolicyVersion(_message.Message):
    __slots__ = ("attempt", "number")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    number: int
    def __init__(self, attempt: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...
