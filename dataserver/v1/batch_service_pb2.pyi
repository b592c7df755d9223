import datetime

from dataserver.v1 import cursor_pb2 as _cursor_pb2
from dataserver.v1 import run_spec_pb2 as _run_spec_pb2
from dataserver.v1 import weight_sync_pb2 as _weight_sync_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Purpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PURPOSE_UNSPECIFIED: _ClassVar[Purpose]
    PURPOSE_TRAIN: _ClassVar[Purpose]
    PURPOSE_EVAL: _ClassVar[Purpose]
PURPOSE_UNSPECIFIED: Purpose
PURPOSE_TRAIN: Purpose
PURPOSE_EVAL: Purpose

class StreamMicroBatchesRequest(_message.Message):
    __slots__ = ("open", "ack", "credit")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    open: Open
    ack: Ack
    credit: Credit
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("run", "attempt", "world_rank", "dp_rank", "next_step", "credits", "attempt_id", "purpose", "eval", "dp_world_size", "begin", "takes_offers", "acked_offer")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORLD_RANK_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    EVAL_FIELD_NUMBER: _ClassVar[int]
    DP_WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    TAKES_OFFERS_FIELD_NUMBER: _ClassVar[int]
    ACKED_OFFER_FIELD_NUMBER: _ClassVar[int]
    run: str
    attempt: int
    world_rank: int
    dp_rank: int
    next_step: int
    credits: int
    attempt_id: str
    purpose: Purpose
    eval: _run_spec_pb2.EvalSpec
    dp_world_size: int
    begin: _cursor_pb2.Cursor
    takes_offers: bool
    acked_offer: int
    def __init__(self, run: _Optional[str] = ..., attempt: _Optional[int] = ..., world_rank: _Optional[int] = ..., dp_rank: _Optional[int] = ..., next_step: _Optional[int] = ..., credits: _Optional[int] = ..., attempt_id: _Optional[str] = ..., purpose: _Optional[_Union[Purpose, str]] = ..., eval: _Optional[_Union[_run_spec_pb2.EvalSpec, _Mapping]] = ..., dp_world_size: _Optional[int] = ..., begin: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., takes_offers: _Optional[bool] = ..., acked_offer: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("step", "offer")
    STEP_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    step: int
    offer: int
    def __init__(self, step: _Optional[int] = ..., offer: _Optional[int] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("micro_batches",)
    MICRO_BATCHES_FIELD_NUMBER: _ClassVar[int]
    micro_batches: int
    def __init__(self, micro_batches: _Optional[int] = ...) -> None: ...

class StreamMicroBatchesResponse(_message.Message):
    __slots__ = ("opened", "step_begun", "end_of_run", "offer", "shutdown_hold", "micro_batches", "checksum")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    STEP_BEGUN_FIELD_NUMBER: _ClassVar[int]
    END_OF_RUN_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_HOLD_FIELD_NUMBER: _ClassVar[int]
    MICRO_BATCHES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    step_begun: StepBegun
    end_of_run: EndOfRun
    offer: _weight_sync_pb2.Offer
    shutdown_hold: ShutdownHold
    micro_batches: _containers.RepeatedCompositeFieldContainer[MicroBatch]
    checksum: int
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., step_begun: _Optional[_Union[StepBegun, _Mapping]] = ..., end_of_run: _Optional[_Union[EndOfRun, _Mapping]] = ..., offer: _Optional[_Union[_weight_sync_pb2.Offer, _Mapping]] = ..., shutdown_hold: _Optional[_Union[ShutdownHold, _Mapping]] = ..., micro_batches: _Optional[_Iterable[_Union[MicroBatch, _Mapping]]] = ..., checksum: _Optional[int] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("base", "server_id", "offer")
    BASE_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    base: _cursor_pb2.Cursor
    server_id: str
    offer: _weight_sync_pb2.Offer
    def __init__(self, base: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., server_id: _Optional[str] = ..., offer: _Optional[_Union[_weight_sync_pb2.Offer, _Mapping]] = ...) -> None: ...

class StepBegun(_message.Message):
    __slots__ = ("step", "rounds", "end", "plan_digest", "sync_weights", "last", "target_count", "token_count", "sample_count", "weight_sum", "orchestrator")
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SYNC_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    TARGET_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SUM_FIELD_NUMBER: _ClassVar[int]
    ORCHESTRATOR_FIELD_NUMBER: _ClassVar[int]
    step: int
    rounds: int
    end: _cursor_pb2.Cursor
    plan_digest: str
    sync_weights: bool
    last: bool
    target_count: int
    token_count: int
    sample_count: int
    weight_sum: float
    orchestrator: _weight_sync_pb2.OrchestratorAddress
    def __init__(self, step: _Optional[int] = ..., rounds: _Optional[int] = ..., end: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., plan_digest: _Optional[str] = ..., sync_weights: _Optional[bool] = ..., last: _Optional[bool] = ..., target_count: _Optional[int] = ..., token_count: _Optional[int] = ..., sample_count: _Optional[int] = ..., weight_sum: _Optional[float] = ..., orchestrator: _Optional[_Union[_weight_sync_pb2.OrchestratorAddress, _Mapping]] = ...) -> None: ...

class MicroBatch(_message.Message):
    __slots__ = ("checksum", "step", "round", "sync_weights", "token_bytes", "alignment", "target_count", "padding", "lengths", "loss_mask", "loss_weight", "images", "fill", "tokens")
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SYNC_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    TARGET_COUNT_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    LOSS_MASK_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    FILL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    checksum: int
    step: int
    round: int
    sync_weights: bool
    token_bytes: int
    alignment: int
    target_count: int
    padding: int
    lengths: _containers.RepeatedScalarFieldContainer[int]
    loss_mask: bytes
    loss_weight: bytes
    images: Images
    fill: bytes
    tokens: bytes
    def __init__(self, checksum: _Optional[int] = ..., step: _Optional[int] = ..., round: _Optional[int] = ..., sync_weights: _Optional[bool] = ..., token_bytes: _Optional[int] = ..., alignment: _Optional[int] = ..., target_count: _Optional[int] = ..., padding: _Optional[int] = ..., lengths: _Optional[_Iterable[int]] = ..., loss_mask: _Optional[bytes] = ..., loss_weight: _Optional[bytes] = ..., images: _Optional[_Union[Images, _Mapping]] = ..., fill: _Optional[bytes] = ..., tokens: _Optional[bytes] = ...) -> None: ...

class Images(_message.Message):
    __slots__ = ("pixel_bytes", "patch_values", "counts", "image_grid_thw", "pixel_values")
    PIXEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    PATCH_VALUES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_GRID_THW_FIELD_NUMBER: _ClassVar[int]
    PIXEL_VALUES_FIELD_NUMBER: _ClassVar[int]
    pixel_bytes: int
    patch_values: int
    counts: _containers.RepeatedScalarFieldContainer[int]
    image_grid_thw: bytes
    pixel_values: bytes
    def __init__(self, pixel_bytes: _Optional[int] = ..., patch_values: _Optional[int] = ..., counts: _Optional[_Iterable[int]] = ..., image_grid_thw: _Optional[bytes] = ..., pixel_values: _Optional[bytes] = ...) -> None: ...

class ShutdownHold(_message.Message):
    __slots__ = ("reason", "deadline")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    deadline: _timestamp_pb2.Timestamp
    def __init__(self, reason: _Optional[str] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class EndOfRun(_message.Message):
    __slots__ = ("end", "reason")
    END_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    end: _cursor_pb2.Cursor
    reason: str
    def __init__(self, end: _Optional[_Union[_cursor_pb2.Cursor, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...
