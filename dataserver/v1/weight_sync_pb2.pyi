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

class SyncOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_OUTCOME_UNSPECIFIED: _ClassVar[SyncOutcome]
    SYNC_OUTCOME_LANDED: _ClassVar[SyncOutcome]
    SYNC_OUTCOME_FAILED: _ClassVar[SyncOutcome]
    SYNC_OUTCOME_SKIPPED: _ClassVar[SyncOutcome]
SYNC_OUTCOME_UNSPECIFIED: SyncOutcome
SYNC_OUTCOME_LANDED: SyncOutcome
SYNC_OUTCOME_FAILED: SyncOutcome
SYNC_OUTCOME_SKIPPED: SyncOutcome

class OrchestratorAddress(_message.Message):
    __slots__ = ("epoch", "address")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    address: str
    def __init__(self, epoch: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class OrchestratorLease(_message.Message):
    __slots__ = ("orchestrator", "holder", "expire_time")
    ORCHESTRATOR_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    orchestrator: OrchestratorAddress
    holder: str
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, orchestrator: _Optional[_Union[OrchestratorAddress, _Mapping]] = ..., holder: _Optional[str] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("number", "version", "sync_weights", "orchestrator")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SYNC_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    ORCHESTRATOR_FIELD_NUMBER: _ClassVar[int]
    number: int
    version: _policy_version_pb2.PolicyVersion
    sync_weights: bool
    orchestrator: OrchestratorAddress
    def __init__(self, number: _Optional[int] = ..., version: _Optional[_Union[_policy_version_pb2.PolicyVersion, _Mapping]] = ..., sync_weights: _Optional[bool] = ..., orchestrator: _Optional[_Union[OrchestratorAddress, _Mapping]] = ...) -> None: ...

class WeightSync(_message.Message):
    __slots__ = ("sync_id", "version", "outcome", "seconds", "stall_seconds", "engines", "detail", "report_time")
    SYNC_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    REPORT_TIME_FIELD_NUMBER: _ClassVar[int]
    sync_id: str
    version: _policy_version_pb2.PolicyVersion
    outcome: SyncOutcome
    seconds: float
    stall_seconds: float
    engines: _containers.RepeatedScalarFieldContainer[str]
    detail: str
    report_time: _timestamp_pb2.Timestamp
    def __init__(self, sync_id: _Optional[str] = ..., version: _Optional[_Union[_policy_version_pb2.PolicyVersion, _Mapping]] = ..., outcome: _Optional[_Union[SyncOutcome, str]] = ..., seconds: _Optional[float] = ..., stall_seconds: _Optional[float] = ..., engines: _Optional[_Iterable[str]] = ..., detail: _Optional[str] = ..., report_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("hold_id", "expire_time")
    HOLD_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    hold_id: str
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, hold_id: _Optional[str] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WeightSyncState(_message.Message):
    __slots__ = ("run", "attempt", "sealed_step", "consumed_step", "requested", "last_requested", "last_sealed", "ended", "shutdown_deadline", "holds", "lease", "landed", "syncs", "max_steps")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SEALED_STEP_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_STEP_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    LAST_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    LAST_SEALED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LANDED_FIELD_NUMBER: _ClassVar[int]
    SYNCS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    run: str
    attempt: int
    sealed_step: int
    consumed_step: int
    requested: _containers.RepeatedScalarFieldContainer[int]
    last_requested: bool
    last_sealed: bool
    ended: bool
    shutdown_deadline: _timestamp_pb2.Timestamp
    holds: _containers.RepeatedCompositeFieldContainer[Hold]
    lease: OrchestratorLease
    landed: _policy_version_pb2.PolicyVersion
    syncs: _containers.RepeatedCompositeFieldContainer[WeightSync]
    max_steps: int
    def __init__(self, run: _Optional[str] = ..., attempt: _Optional[int] = ..., sealed_step: _Optional[int] = ..., consumed_step: _Optional[int] = ..., requested: _Optional[_Iterable[int]] = ..., last_requested: _Optional[bool] = ..., last_sealed: _Optional[bool] = ..., ended: _Optional[bool] = ..., shutdown_deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., holds: _Optional[_Iterable[_Union[Hold, _Mapping]]] = ..., lease: _Optional[_Union[OrchestratorLease, _Mapping]] = ..., landed: _Optional[_Union[_policy_version_pb2.PolicyVersion, _Mapping]] = ..., syncs: _Optional[_Iterable[_Union[WeightSync, _Mapping]]] = ..., max_steps: _Optional[int] = ...) -> None: ...
