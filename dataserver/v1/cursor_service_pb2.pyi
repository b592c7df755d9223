import datetime

from dataserver.v1 import cursor_pb2 as _cursor_pb2
from dataserver.v1 import run_pb2 as _run_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetCursorRequest(_message.Message):
    __slots__ = ("run", "version")
    RUN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    run: str
    version: int
    def __init__(self, run: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class GetCursorResponse(_message.Message):
    __slots__ = ("cursor", "checkpoint_uri")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_URI_FIELD_NUMBER: _ClassVar[int]
    cursor: _cursor_pb2.Cursor
    checkpoint_uri: str
    def __init__(self, cursor: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., checkpoint_uri: _Optional[str] = ...) -> None: ...

class ListCursorsRequest(_message.Message):
    __slots__ = ("run", "page_size", "page_token")
    RUN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    run: str
    page_size: int
    page_token: str
    def __init__(self, run: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCursorsResponse(_message.Message):
    __slots__ = ("commits", "next_page_token")
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    commits: _containers.RepeatedCompositeFieldContainer[Commit]
    next_page_token: str
    def __init__(self, commits: _Optional[_Iterable[_Union[Commit, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("cursor", "attempt", "checkpoint_uri", "time")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_URI_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    cursor: _cursor_pb2.Cursor
    attempt: int
    checkpoint_uri: str
    time: _timestamp_pb2.Timestamp
    def __init__(self, cursor: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., attempt: _Optional[int] = ..., checkpoint_uri: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CommitCursorRequest(_message.Message):
    __slots__ = ("run", "attempt", "cursor", "checkpoint_uri", "attempt_id")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_URI_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    run: str
    attempt: int
    cursor: _cursor_pb2.Cursor
    checkpoint_uri: str
    attempt_id: str
    def __init__(self, run: _Optional[str] = ..., attempt: _Optional[int] = ..., cursor: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., checkpoint_uri: _Optional[str] = ..., attempt_id: _Optional[str] = ...) -> None: ...

class CommitCursorResponse(_message.Message):
    __slots__ = ("committed",)
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    committed: _cursor_pb2.Cursor
    def __init__(self, committed: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ...) -> None: ...

class RewindRunRequest(_message.Message):
    __slots__ = ("run", "version")
    RUN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    run: str
    version: int
    def __init__(self, run: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class RewindRunResponse(_message.Message):
    __slots__ = ("committed", "fenced_attempt")
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    FENCED_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    committed: _cursor_pb2.Cursor
    fenced_attempt: int
    def __init__(self, committed: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., fenced_attempt: _Optional[int] = ...) -> None: ...

class DescribeStepRequest(_message.Message):
    __slots__ = ("run", "step", "dp_world_size", "dp_rank")
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DP_WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    run: str
    step: int
    dp_world_size: int
    dp_rank: int
    def __init__(self, run: _Optional[str] = ..., step: _Optional[int] = ..., dp_world_size: _Optional[int] = ..., dp_rank: _Optional[int] = ...) -> None: ...

class DescribeStepResponse(_message.Message):
    __slots__ = ("step", "attempt", "begin", "end", "plan_digest", "sync_weights", "dp_world_size", "micro_batches", "figures", "target_count", "token_count", "sample_count", "last")
    STEP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SYNC_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    DP_WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    MICRO_BATCHES_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    TARGET_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    step: int
    attempt: int
    begin: _cursor_pb2.Cursor
    end: _cursor_pb2.Cursor
    plan_digest: str
    sync_weights: bool
    dp_world_size: int
    micro_batches: _containers.RepeatedCompositeFieldContainer[MicroBatchPlan]
    figures: _run_pb2.PackingFigures
    target_count: int
    token_count: int
    sample_count: int
    last: bool
    def __init__(self, step: _Optional[int] = ..., attempt: _Optional[int] = ..., begin: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., end: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., plan_digest: _Optional[str] = ..., sync_weights: _Optional[bool] = ..., dp_world_size: _Optional[int] = ..., micro_batches: _Optional[_Iterable[_Union[MicroBatchPlan, _Mapping]]] = ..., figures: _Optional[_Union[_run_pb2.PackingFigures, _Mapping]] = ..., target_count: _Optional[int] = ..., token_count: _Optional[int] = ..., sample_count: _Optional[int] = ..., last: _Optional[bool] = ...) -> None: ...

class MicroBatchPlan(_message.Message):
    __slots__ = ("round", "dp_rank", "samples", "is_image_round")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    IS_IMAGE_ROUND_FIELD_NUMBER: _ClassVar[int]
    round: int
    dp_rank: int
    samples: _containers.RepeatedCompositeFieldContainer[SamplePlan]
    is_image_round: bool
    def __init__(self, round: _Optional[int] = ..., dp_rank: _Optional[int] = ..., samples: _Optional[_Iterable[_Union[SamplePlan, _Mapping]]] = ..., is_image_round: _Optional[bool] = ...) -> None: ...

class SamplePlan(_message.Message):
    __slots__ = ("store", "row", "length", "offset")
    STORE_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    store: str
    row: int
    length: int
    offset: int
    def __init__(self, store: _Optional[str] = ..., row: _Optional[int] = ..., length: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...
