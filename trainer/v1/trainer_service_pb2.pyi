from dataserver.v1 import policy_version_pb2 as _policy_version_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("run", "version", "world_size", "sync_id")
    RUN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    SYNC_ID_FIELD_NUMBER: _ClassVar[int]
    run: str
    version: _policy_version_pb2.PolicyVersion
    world_size: int
    sync_id: str
    def __init__(self, run: _Optional[str] = ..., version: _Optional[_Union[_policy_version_pb2.PolicyVersion, _Mapping]] = ..., world_size: _Optional[int] = ..., sync_id: _Optional[str] = ...) -> None: ...

class AbortTransferRequest(_message.Message):
    __slots__ = ("sync_id", "reason")
    SYNC_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    sync_id: str
    reason: str
    def __init__(self, sync_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class AbortTransferResponse(_message.Message):
    __slots__ = ("aborted",)
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    aborted: bool
    def __init__(self, aborted: _Optional[bool] = ...) -> None: ...
