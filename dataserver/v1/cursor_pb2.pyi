from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Cursor(_message.Message):
    __slots__ = ("order_fingerprint", "stage", "step", "epoch", "position", "source_positions", "window")
    ORDER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    order_fingerprint: str
    stage: int
    step: int
    epoch: int
    position: int
    source_positions: _containers.RepeatedScalarFieldContainer[int]
    window: Window
    def __init__(self, order_fingerprint: _Optional[str] = ..., stage: _Optional[int] = ..., step: _Optional[int] = ..., epoch: _Optional[int] = ..., position: _Optional[int] = ..., source_positions: _Optional[_Iterable[int]] = ..., window: _Optional[_Union[Window, _Mapping]] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("steps", "steps_done", "samples", "deal")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    STEPS_DONE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DEAL_FIELD_NUMBER: _ClassVar[int]
    steps: int
    steps_done: int
    samples: int
    deal: Deal
    def __init__(self, steps: _Optional[int] = ..., steps_done: _Optional[int] = ..., samples: _Optional[int] = ..., deal: _Optional[_Union[Deal, _Mapping]] = ...) -> None: ...

class Deal(_message.Message):
    __slots__ = ("dp_world_size", "micro_batch_tokens", "alignment", "cost_linear", "cost_quadratic", "policy", "planner_version")
    DP_WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    MICRO_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    COST_LINEAR_FIELD_NUMBER: _ClassVar[int]
    COST_QUADRATIC_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PLANNER_VERSION_FIELD_NUMBER: _ClassVar[int]
    dp_world_size: int
    micro_batch_tokens: int
    alignment: int
    cost_linear: int
    cost_quadratic: int
    policy: str
    planner_version: int
    def __init__(self, dp_world_size: _Optional[int] = ..., micro_batch_tokens: _Optional[int] = ..., alignment: _Optional[int] = ..., cost_linear: _Optional[int] = ..., cost_quadratic: _Optional[int] = ..., policy: _Optional[str] = ..., planner_version: _Optional[int] = ...) -> None: ...
