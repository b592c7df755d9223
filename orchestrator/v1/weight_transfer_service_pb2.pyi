import datetime

from dataserver.v1 import policy_version_pb2 as _policy_version_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Transport(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSPORT_UNSPECIFIED: _ClassVar[Transport]
    TRANSPORT_FILESYSTEM: _ClassVar[Transport]
    TRANSPORT_GLOO: _ClassVar[Transport]
    TRANSPORT_NCCL: _ClassVar[Transport]

class RefusalReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_REASON_UNSPECIFIED: _ClassVar[RefusalReason]
    REFUSAL_REASON_PINNED: _ClassVar[RefusalReason]
    REFUSAL_REASON_NO_ENGINE: _ClassVar[RefusalReason]
    REFUSAL_REASON_BUSY: _ClassVar[RefusalReason]
    REFUSAL_REASON_STALE: _ClassVar[RefusalReason]
    REFUSAL_REASON_MISMATCH: _ClassVar[RefusalReason]
    REFUSAL_REASON_EXPIRED: _ClassVar[RefusalReason]
    REFUSAL_REASON_UNWANTED: _ClassVar[RefusalReason]
    REFUSAL_REASON_TRANSPORT: _ClassVar[RefusalReason]
TRANSPORT_UNSPECIFIED: Transport
TRANSPORT_FILESYSTEM: Transport
TRANSPORT_GLOO: Transport
TRANSPORT_NCCL: Transport
REFUSAL_REASON_UNSPECIFIED: RefusalReason
REFUSAL_REASON_PINNED: RefusalReason
REFUSAL_REASON_NO_ENGINE: RefusalReason
REFUSAL_REASON_BUSY: RefusalReason
REFUSAL_REASON_STALE: RefusalReason
REFUSAL_REASON_MISMATCH: RefusalReason
REFUSAL_REASON_EXPIRED: RefusalReason
REFUSAL_REASON_UNWANTED: RefusalReason
REFUSAL_REASON_TRANSPORT: RefusalReason

class TensorSpec(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class PrepareTransferRequest(_message.Message):
    __slots__ = ("run", "version", "attempt_id", "sync_id", "epoch", "transport", "tensors", "bucket_bytes", "trainer_address", "rendezvous", "directory")
    RUN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    SYNC_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    BUCKET_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRAINER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    run: str
    version: _policy_version_pb2.PolicyVersion
    attempt_id: str
    sync_id: str
    epoch: int
    transport: Transport
    tensors: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    bucket_bytes: int
    trainer_address: str
    rendezvous: str
    directory: str
    def __init__(self, run: _Optional[str] = ..., version: _Optional[_Union[_policy_version_pb2.PolicyVersion, _Mapping]] = ..., attempt_id: _Optional[str] = ..., sync_id: _Optional[str] = ..., epoch: _Optional[int] = ..., transport: _Optional[_Union[Transport, str]] = ..., tensors: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., bucket_bytes: _Optional[int] = ..., trainer_address: _Optional[str] = ..., rendezvous: _Optional[str] = ..., directory: _Optional[str] = ...) -> None: ...

class TransferReady(_message.Message):
    __slots__ = ("engines", "group_size", "expires_in")
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    engines: _containers.RepeatedCompositeFieldContainer[TransferEngine]
    group_size: int
    expires_in: _duration_pb2.Duration
    def __init__(self, engines: _Optional[_Iterable[_Union[TransferEngine, _Mapping]]] = ..., group_size: _Optional[int] = ..., expires_in: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class TransferEngine(_message.Message):
    __slots__ = ("name", "first_rank", "workers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIRST_RANK_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    first_rank: int
    workers: int
    def __init__(self, name: _Optional[str] = ..., first_rank: _Optional[int] = ..., workers: _Optional[int] = ...) -> None: ...

class TransferRefused(_message.Message):
    __slots__ = ("reason", "detail")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    reason: RefusalReason
    detail: str
    def __init__(self, reason: _Optional[_Union[RefusalReason, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class PrepareTransferResponse(_message.Message):
    __slots__ = ("ready", "refused")
    READY_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ready: TransferReady
    refused: TransferRefused
    def __init__(self, ready: _Optional[_Union[TransferReady, _Mapping]] = ..., refused: _Optional[_Union[TransferRefused, _Mapping]] = ...) -> None: ...

class CommitTransferRequest(_message.Message):
    __slots__ = ("run", "sync_id", "checksum")
    RUN_FIELD_NUMBER: _ClassVar[int]
    SYNC_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    run: str
    sync_id: str
    checksum: str
    def __init__(self, run: _Optional[str] = ..., sync_id: _Optional[str] = ..., checksum: _Optional[str] = ...) -> None: ...

class EngineOutcome(_message.Message):
    __slots__ = ("engine", "landed", "detail")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    LANDED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    engine: str
    landed: bool
    detail: str
    def __init__(self, engine: _Optional[str] = ..., landed: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...

class CommitTransferResponse(_message.Message):
    __slots__ = ("engines",)
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    engines: _containers.RepeatedCompositeFieldContainer[EngineOutcome]
    def __init__(self, engines: _Optional[_Iterable[_Union[EngineOutcome, _Mapping]]] = ...) -> None: ...

class AbortTransferRequest(_message.Message):
    __slots__ = ("run", "sync_id", "reason")
    RUN_FIELD_NUMBER: _ClassVar[int]
    SYNC_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run: str
    sync_id: str
    reason: str
    def __init__(self, run: _Optional[str] = ..., sync_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class AbortTransferResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
