"""Handovers on ranks, to a peer on rank 0, and what became of them."""

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dataserver.testing import attempt_info
from dataserver.weight_sync import OrchestratorAddress, PolicyVersion, WeightSync
from trainer.config import TrainerConfig
from trainer.launch import World
from trainerlab.jobs import RUN
from trainerlab.peer import Peer, Weights


@dataclass(slots=True, kw_only=True)
class Told:
    """What rank 0 tells of its handovers."""

    results: list[tuple[WeightSync, int]] = field(default_factory=list)
    reported: list[WeightSync] = field(default_factory=list)
    expected: list[Weights] = field(default_factory=list)
    received: list[tuple[int, list[Weights]]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    prepares: list[bytes] = field(default_factory=list)
    aborted: list[bool] = field(default_factory=list)


def hand_over_versions(
    world: World, config: TrainerConfig, count: int, engines: tuple[int, ...], faults: tuple[str, ...], abort: bool
) -> Told | None:
    """Hand over `count` versions of a model whose weights change in between; rank 0 tells what came of it."""
    import torch

    from trainer.train import build
    from trainer.weights.handover import Handover
    from trainer.weights.lead import Lead
    from trainer.weights.outgoing import outgoing
    from trainer.weights.reports import ReportThread
    from trainer.weights.underway import Underway
    from trainer.weights.ways import transport_maker

    assert config.weights is not None
    model, _ = build(config, world, None)
    sent = outgoing(model, config.weights, config.model.dtype)
    make = transport_maker(config.weights, world, sent)
    underway, told, lead = Underway(), Told(), None
    peer = Peer(engines, faults) if world.is_first else None
    if peer is not None:
        lead = Lead(
            config=config.weights, run=RUN, attempt=attempt_info(), outgoing=sent, transport_of=make, underway=underway,
            reports=ReportThread(told.reported.append), trainer_address="127.0.0.1:1",
        )  # fmt: skip
        if abort:
            threading.Thread(target=_abort_when_reached, args=(peer, underway, told), daemon=True).start()
    handover = Handover(world=world, outgoing=sent, transport_of=make, underway=underway, lead=lead)
    for number in range(count):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.125 * number)
        told.expected.append(state_of(model, sent.dtype))
        version = PolicyVersion(attempt=1, number=number)
        handover.hand_over(version, OrchestratorAddress(epoch=1, address="" if peer is None else peer.address))
    handover.finish()
    told.results = handover.settled()
    if peer is None:
        return None
    peer.close()
    told.received, told.calls = peer.received, peer.calls
    told.prepares = [prepare.SerializeToString() for prepare in peer.prepares]
    return told


def state_of(model: Any, dtype: Any) -> Weights:
    """The model's whole state as torch's own export gives it, cast last; tied names once."""
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=False))
    names = [name for name, _ in model.named_parameters()]
    return {name: _bytes(whole[name].to(dtype)) for name in names if whole} if torch.is_tensor(whole[names[0]]) else {}


def _bytes(value: Any) -> np.ndarray:
    import torch

    return value.detach().clone().contiguous().reshape(-1).view(torch.uint8).numpy()


def _abort_when_reached(peer: Peer, underway: Any, told: Told) -> None:
    assert peer.reached.wait(60)
    told.aborted.append(underway.abort("0" * 32, "another transfer"))
    told.aborted.append(underway.abort(underway.sync_id, "an engine died"))
