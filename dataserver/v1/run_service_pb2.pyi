import datetime

from dataserver.v1 import cursor_pb2 as _cursor_pb2
from dataserver.v1 import run_pb2 as _run_pb2
from dataserver.v1 import run_spec_pb2 as _run_spec_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BeginMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BEGIN_MODE_UNSPECIFIED: _ClassVar[BeginMode]
    BEGIN_MODE_START: _ClassVar[BeginMode]
    BEGIN_MODE_RESUME: _ClassVar[BeginMode]
BEGIN_MODE_UNSPECIFIED: BeginMode
BEGIN_MODE_START: BeginMode
BEGIN_MODE_RESUME: BeginMode

class CreateRunRequest(_message.Message):
    __slots__ = ("name", "spec")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: _run_spec_pb2.RunSpec
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[_run_spec_pb2.RunSpec, _Mapping]] = ...) -> None: ...

class CreateRunResponse(_message.Message):
    __slots__ = ("run", "created")
    RUN_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    created: bool
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ..., created: _Optional[bool] = ...) -> None: ...

class AmendRunRequest(_message.Message):
    __slots__ = ("run", "first_step", "order")
    RUN_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    run: str
    first_step: int
    order: _run_spec_pb2.OrderSpec
    def __init__(self, run: _Optional[str] = ..., first_step: _Optional[int] = ..., order: _Optional[_Union[_run_spec_pb2.OrderSpec, _Mapping]] = ...) -> None: ...

class AmendRunResponse(_message.Message):
    __slots__ = ("run", "amended")
    RUN_FIELD_NUMBER: _ClassVar[int]
    AMENDED_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    amended: bool
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ..., amended: _Optional[bool] = ...) -> None: ...

class BeginAttemptRequest(_message.Message):
    __slots__ = ("run", "mode", "cursor", "version", "world_size", "dp_world_size", "batch", "holder", "take_over")
    RUN_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    DP_WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    TAKE_OVER_FIELD_NUMBER: _ClassVar[int]
    run: str
    mode: BeginMode
    cursor: _cursor_pb2.Cursor
    version: int
    world_size: int
    dp_world_size: int
    batch: _run_spec_pb2.BatchSpec
    holder: str
    take_over: bool
    def __init__(self, run: _Optional[str] = ..., mode: _Optional[_Union[BeginMode, str]] = ..., cursor: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., version: _Optional[int] = ..., world_size: _Optional[int] = ..., dp_world_size: _Optional[int] = ..., batch: _Optional[_Union[_run_spec_pb2.BatchSpec, _Mapping]] = ..., holder: _Optional[str] = ..., take_over: _Optional[bool] = ...) -> None: ...

class BeginAttemptResponse(_message.Message):
    __slots__ = ("attempt",)
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    attempt: _run_pb2.Attempt
    def __init__(self, attempt: _Optional[_Union[_run_pb2.Attempt, _Mapping]] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_run_pb2.Run]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[_run_pb2.Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class WatchRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...

class DeleteRunRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class DeleteRunResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRunEventsRequest(_message.Message):
    __slots__ = ("run", "page_size", "page_token")
    RUN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    run: str
    page_size: int
    page_token: str
    def __init__(self, run: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRunEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[RunEvent]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[RunEvent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RunEvent(_message.Message):
    __slots__ = ("time", "kind", "attempt", "step", "detail")
    TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    kind: str
    attempt: int
    step: int
    detail: str
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[str] = ..., attempt: _Optional[int] = ..., step: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...
