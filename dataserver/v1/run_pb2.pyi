import datetime

from dataserver.v1 import cursor_pb2 as _cursor_pb2
from dataserver.v1 import run_spec_pb2 as _run_spec_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Run(_message.Message):
    __slots__ = ("name", "uid", "spec", "order_fingerprint", "create_time", "attempt", "committed", "sealed_step", "consumed_step", "acked_steps", "ended", "epoch_samples", "totals", "stages", "mixture", "read_time")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ORDER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    SEALED_STEP_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_STEP_FIELD_NUMBER: _ClassVar[int]
    ACKED_STEPS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    MIXTURE_FIELD_NUMBER: _ClassVar[int]
    READ_TIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    uid: str
    spec: _run_spec_pb2.RunSpec
    order_fingerprint: str
    create_time: _timestamp_pb2.Timestamp
    attempt: Attempt
    committed: _cursor_pb2.Cursor
    sealed_step: int
    consumed_step: int
    acked_steps: _containers.RepeatedScalarFieldContainer[int]
    ended: bool
    epoch_samples: int
    totals: SealedTotals
    stages: _containers.RepeatedCompositeFieldContainer[Stage]
    mixture: Mixture
    read_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., uid: _Optional[str] = ..., spec: _Optional[_Union[_run_spec_pb2.RunSpec, _Mapping]] = ..., order_fingerprint: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempt: _Optional[_Union[Attempt, _Mapping]] = ..., committed: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., sealed_step: _Optional[int] = ..., consumed_step: _Optional[int] = ..., acked_steps: _Optional[_Iterable[int]] = ..., ended: _Optional[bool] = ..., epoch_samples: _Optional[int] = ..., totals: _Optional[_Union[SealedTotals, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., mixture: _Optional[_Union[Mixture, _Mapping]] = ..., read_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("first_step", "order", "order_fingerprint")
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ORDER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    first_step: int
    order: _run_spec_pb2.OrderSpec
    order_fingerprint: str
    def __init__(self, first_step: _Optional[int] = ..., order: _Optional[_Union[_run_spec_pb2.OrderSpec, _Mapping]] = ..., order_fingerprint: _Optional[str] = ...) -> None: ...

class SealedTotals(_message.Message):
    __slots__ = ("steps", "last", "mean", "stores")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    steps: int
    last: PackingFigures
    mean: PackingFigures
    stores: _containers.RepeatedCompositeFieldContainer[StoreTokens]
    def __init__(self, steps: _Optional[int] = ..., last: _Optional[_Union[PackingFigures, _Mapping]] = ..., mean: _Optional[_Union[PackingFigures, _Mapping]] = ..., stores: _Optional[_Iterable[_Union[StoreTokens, _Mapping]]] = ...) -> None: ...

class StoreTokens(_message.Message):
    __slots__ = ("store", "tokens", "share")
    STORE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    store: str
    tokens: int
    share: float
    def __init__(self, store: _Optional[str] = ..., tokens: _Optional[int] = ..., share: _Optional[float] = ...) -> None: ...

class Mixture(_message.Message):
    __slots__ = ("stage", "draws", "sources")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    stage: int
    draws: int
    sources: _containers.RepeatedCompositeFieldContainer[SourceShare]
    def __init__(self, stage: _Optional[int] = ..., draws: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[SourceShare, _Mapping]]] = ...) -> None: ...

class SourceShare(_message.Message):
    __slots__ = ("store", "draws", "share", "target_share", "share_error", "target_token_share")
    STORE_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    TARGET_SHARE_FIELD_NUMBER: _ClassVar[int]
    SHARE_ERROR_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOKEN_SHARE_FIELD_NUMBER: _ClassVar[int]
    store: str
    draws: int
    share: float
    target_share: float
    share_error: float
    target_token_share: float
    def __init__(self, store: _Optional[str] = ..., draws: _Optional[int] = ..., share: _Optional[float] = ..., target_share: _Optional[float] = ..., share_error: _Optional[float] = ..., target_token_share: _Optional[float] = ...) -> None: ...

class PackingFigures(_message.Message):
    __slots__ = ("token_efficiency", "rank_imbalance", "round_inflation")
    TOKEN_EFFICIENCY_FIELD_NUMBER: _ClassVar[int]
    RANK_IMBALANCE_FIELD_NUMBER: _ClassVar[int]
    ROUND_INFLATION_FIELD_NUMBER: _ClassVar[int]
    token_efficiency: float
    rank_imbalance: float
    round_inflation: float
    def __init__(self, token_efficiency: _Optional[float] = ..., rank_imbalance: _Optional[float] = ..., round_inflation: _Optional[float] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("number", "base", "version", "world_size", "dp_world_size", "batch", "holder", "begin_time", "lease_expire_time", "attempt_id")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    DP_WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    number: int
    base: _cursor_pb2.Cursor
    version: int
    world_size: int
    dp_world_size: int
    batch: _run_spec_pb2.BatchSpec
    holder: str
    begin_time: _timestamp_pb2.Timestamp
    lease_expire_time: _timestamp_pb2.Timestamp
    attempt_id: str
    def __init__(self, number: _Optional[int] = ..., base: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., version: _Optional[int] = ..., world_size: _Optional[int] = ..., dp_world_size: _Optional[int] = ..., batch: _Optional[_Union[_run_spec_pb2.BatchSpec, _Mapping]] = ..., holder: _Optional[str] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempt_id: _Optional[str] = ...) -> None: ...
