import datetime

from dataserver.v1 import weight_sync_pb2 as _weight_sync_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RequestOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REQUEST_OUTCOME_UNSPECIFIED: _ClassVar[RequestOutcome]
    REQUEST_OUTCOME_ACCEPTED: _ClassVar[RequestOutcome]
    REQUEST_OUTCOME_LANDED: _ClassVar[RequestOutcome]
    REQUEST_OUTCOME_ALREADY_SEALED: _ClassVar[RequestOutcome]
REQUEST_OUTCOME_UNSPECIFIED: RequestOutcome
REQUEST_OUTCOME_ACCEPTED: RequestOutcome
REQUEST_OUTCOME_LANDED: RequestOutcome
REQUEST_OUTCOME_ALREADY_SEALED: RequestOutcome

class RequestWeightSyncRequest(_message.Message):
    __slots__ = ("run", "version", "last", "at_or_after")
    RUN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    AT_OR_AFTER_FIELD_NUMBER: _ClassVar[int]
    run: str
    version: int
    last: bool
    at_or_after: bool
    def __init__(self, run: _Optional[str] = ..., version: _Optional[int] = ..., last: _Optional[bool] = ..., at_or_after: _Optional[bool] = ...) -> None: ...

class RequestWeightSyncResponse(_message.Message):
    __slots__ = ("outcome", "version")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    outcome: RequestOutcome
    version: int
    def __init__(self, outcome: _Optional[_Union[RequestOutcome, str]] = ..., version: _Optional[int] = ...) -> None: ...

class HoldWeightSyncRequest(_message.Message):
    __slots__ = ("run", "hold_id", "ttl")
    RUN_FIELD_NUMBER: _ClassVar[int]
    HOLD_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    run: str
    hold_id: str
    ttl: _duration_pb2.Duration
    def __init__(self, run: _Optional[str] = ..., hold_id: _Optional[str] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class HoldWeightSyncResponse(_message.Message):
    __slots__ = ("expire_time",)
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ReleaseWeightSyncRequest(_message.Message):
    __slots__ = ("run", "hold_id")
    RUN_FIELD_NUMBER: _ClassVar[int]
    HOLD_ID_FIELD_NUMBER: _ClassVar[int]
    run: str
    hold_id: str
    def __init__(self, run: _Optional[str] = ..., hold_id: _Optional[str] = ...) -> None: ...

class ReleaseWeightSyncResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportWeightSyncRequest(_message.Message):
    __slots__ = ("run", "sync")
    RUN_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    run: str
    sync: _weight_sync_pb2.WeightSync
    def __init__(self, run: _Optional[str] = ..., sync: _Optional[_Union[_weight_sync_pb2.WeightSync, _Mapping]] = ...) -> None: ...

class ReportWeightSyncResponse(_message.Message):
    __slots__ = ("sync",)
    SYNC_FIELD_NUMBER: _ClassVar[int]
    sync: _weight_sync_pb2.WeightSync
    def __init__(self, sync: _Optional[_Union[_weight_sync_pb2.WeightSync, _Mapping]] = ...) -> None: ...

class GetWeightSyncStateRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class GetWeightSyncStateResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: _weight_sync_pb2.WeightSyncState
    def __init__(self, state: _Optional[_Union[_weight_sync_pb2.WeightSyncState, _Mapping]] = ...) -> None: ...

class WatchWeightSyncStateRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class WatchWeightSyncStateResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: _weight_sync_pb2.WeightSyncState
    def __init__(self, state: _Optional[_Union[_weight_sync_pb2.WeightSyncState, _Mapping]] = ...) -> None: ...

class LeaseOrchestratorRequest(_message.Message):
    __slots__ = ("run", "holder", "address", "ttl")
    RUN_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    run: str
    holder: str
    address: str
    ttl: _duration_pb2.Duration
    def __init__(self, run: _Optional[str] = ..., holder: _Optional[str] = ..., address: _Optional[str] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class LeaseOrchestratorResponse(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: _weight_sync_pb2.OrchestratorLease
    def __init__(self, lease: _Optional[_Union[_weight_sync_pb2.OrchestratorLease, _Mapping]] = ...) -> None: ...

class ReleaseOrchestratorRequest(_message.Message):
    __slots__ = ("run", "holder")
    RUN_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    run: str
    holder: str
    def __init__(self, run: _Optional[str] = ..., holder: _Optional[str] = ...) -> None: ...

class ReleaseOrchestratorResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
