import datetime

from dataserver.v1 import policy_version_pb2 as _policy_version_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EvalState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVAL_STATE_UNSPECIFIED: _ClassVar[EvalState]
    EVAL_STATE_QUEUED: _ClassVar[EvalState]
    EVAL_STATE_RUNNING: _ClassVar[EvalState]
    EVAL_STATE_DONE: _ClassVar[EvalState]
    EVAL_STATE_FAILED: _ClassVar[EvalState]
    EVAL_STATE_MISSED: _ClassVar[EvalState]
EVAL_STATE_UNSPECIFIED: EvalState
EVAL_STATE_QUEUED: EvalState
EVAL_STATE_RUNNING: EvalState
EVAL_STATE_DONE: EvalState
EVAL_STATE_FAILED: EvalState
EVAL_STATE_MISSED: EvalState

class VersionTokens(_message.Message):
    __slots__ = ("version", "tokens")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    version: _policy_version_pb2.PolicyVersion
    tokens: int
    def __init__(self, version: _Optional[_Union[_policy_version_pb2.PolicyVersion, _Mapping]] = ..., tokens: _Optional[int] = ...) -> None: ...

class Eval(_message.Message):
    __slots__ = ("eval_id", "run", "name", "version", "state", "samples", "scored", "figures", "version_tokens", "create_time", "end_time", "detail")
    class FiguresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    EVAL_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    VERSION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    eval_id: str
    run: str
    name: str
    version: _policy_version_pb2.PolicyVersion
    state: EvalState
    samples: int
    scored: int
    figures: _containers.ScalarMap[str, float]
    version_tokens: _containers.RepeatedCompositeFieldContainer[VersionTokens]
    create_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    detail: str
    def __init__(self, eval_id: _Optional[str] = ..., run: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[_Union[_policy_version_pb2.PolicyVersion, _Mapping]] = ..., state: _Optional[_Union[EvalState, str]] = ..., samples: _Optional[int] = ..., scored: _Optional[int] = ..., figures: _Optional[_Mapping[str, float]] = ..., version_tokens: _Optional[_Iterable[_Union[VersionTokens, _Mapping]]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., detail: _Optional[str] = ...) -> None: ...

class TriggerEvalRequest(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class TriggerEvalResponse(_message.Message):
    __slots__ = ("eval",)
    EVAL_FIELD_NUMBER: _ClassVar[int]
    eval: Eval
    def __init__(self, eval: _Optional[_Union[Eval, _Mapping]] = ...) -> None: ...

class GetEvalRequest(_message.Message):
    __slots__ = ("eval_id",)
    EVAL_ID_FIELD_NUMBER: _ClassVar[int]
    eval_id: str
    def __init__(self, eval_id: _Optional[str] = ...) -> None: ...

class GetEvalResponse(_message.Message):
    __slots__ = ("eval",)
    EVAL_FIELD_NUMBER: _ClassVar[int]
    eval: Eval
    def __init__(self, eval: _Optional[_Union[Eval, _Mapping]] = ...) -> None: ...

class ListEvalsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "name")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    name: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ListEvalsResponse(_message.Message):
    __slots__ = ("evals", "next_page_token")
    EVALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    evals: _containers.RepeatedCompositeFieldContainer[Eval]
    next_page_token: str
    def __init__(self, evals: _Optional[_Iterable[_Union[Eval, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchEvalsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class WatchEvalsResponse(_message.Message):
    __slots__ = ("eval",)
    EVAL_FIELD_NUMBER: _ClassVar[int]
    eval: Eval
    def __init__(self, eval: _Optional[_Union[Eval, _Mapping]] = ...) -> None: ...
