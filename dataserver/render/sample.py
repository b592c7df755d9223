"""A rendered conversation, and who renders one."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dataserver.render.conversation import Conversation
from dataserver.render_options import RenderOptions, TrainOn


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A whole conversation. `input_ids`: int32[n]; `loss_mask`: bool[n], whether the token itself is a target.

    `joined`: tokens that hold the end of a body and the beginning of scaffolding, or the other way round. They are no
    targets: nothing is to be learnt from what the template says.
    """

    input_ids: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    joined: int = 0


class Renderer(Protocol):
    """Renders conversations for one model. Raises `conversation.RowError` for those that it cannot."""

    @property
    def name(self) -> str:
        """Which path it takes, for reports and cache keys."""

    def render(self, conversation: Conversation) -> Sample:
        """Tokens and mask of a conversation."""


def selected_messages(conversation: Conversation, options: RenderOptions) -> list[bool]:
    """Which messages have targets: those of the roles, and of assistant turns all or the last."""
    roles = [message["role"] for message in conversation.messages]
    selected = [role in options.roles for role in roles]
    if options.train_on is TrainOn.LAST:
        last = max((index for index, role in enumerate(roles) if role == "assistant"), default=-1)
        selected = [
            chosen and (role != "assistant" or index == last)
            for index, (role, chosen) in enumerate(zip(roles, selected, strict=True))
        ]
    return selected
