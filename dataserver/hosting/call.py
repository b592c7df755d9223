"""gRPC's side of a call, as handlers see it."""

from typing import Any, TypeAlias

import grpc

# Handlers read and write protobuf messages, or bytes where an identity stands for the serializer.
Call: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

# What `Call.read` returns after the client's last message. The stubs do not know it.
EOF: object = grpc.aio.EOF  # type: ignore[attr-defined]
