"""Rendering by the `renderers` package, which builds every model family's turns from their parts.

It knows of each token which message it belongs to, whether the model would have sampled it, and whether it is body or
scaffolding, so that nothing has to be searched for. https://github.com/PrimeIntellect-ai/renderers

Where the tokenizer has a chat template, both have to give the same words: see `agreement`.
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidConfigError
from dataserver.render.agreement import OwnTemplate
from dataserver.render.chat_template import DAY
from dataserver.render.conversation import Conversation, RowError
from dataserver.render.lean_tokenizer import LeanTokenizer, Tokenizer
from dataserver.render.sample import Sample, selected_messages
from dataserver.render_options import RenderOptions

# A renderer of the package, and what it builds: neither has types that hold over families.
PackageRenderer: TypeAlias = Any
Built: TypeAlias = Any

# Families that tell what the model says without asking where tokens stand, as tests see: that is asked for bodies of
# other roles alone.
TURNS_BY_CONSTRUCTION: Final = frozenset((
    "qwen3", "qwen3.5", "qwen3.6", "qwen3.8", "qwen3-vl", "nemotron-3", "nemotron-3-ultra", "nemotron-3.5", "glm-4.5",
    "llama-3", "gemma4", "deepseek-v3", "gpt-oss",
))  # fmt: skip


class FamilyRenderer:
    """See `sample.Renderer`. `own`: None where the tokenizer has no template."""

    def __init__(
        self,
        renderer: PackageRenderer,
        tokenizer: Tokenizer,
        name: str,
        options: RenderOptions,
        own: OwnTemplate | None,
    ) -> None:
        self._renderer = renderer
        self._tokenizer = tokenizer
        self._options = options
        self.own = own
        self._bodies = frozenset(options.roles) - {"assistant"}
        self._stop_ids: list[int] = list(renderer.get_stop_token_ids())
        self.name = name

    def render(self, conversation: Conversation) -> Sample:
        """See `sample.Renderer`."""
        messages, tools = list(conversation.messages), list(conversation.tools)
        try:
            built = self._renderer.render(messages, tools=tools or None)
        except Exception as error:  # the package raises whatever its families do
            raise RowError(f"the renderer {self.name} refuses it ({type(error).__name__}: {error})") from error
        if self.own is not None and (where := self.own.difference(built.token_ids, messages, tools)) is not None:
            raise RowError(
                f"the renderer {self.name} and the chat template of the tokenizer do not agree, {where}. Use the "
                "template (family = template), or take out of the words what only templates write"
            )
        return self._sample(built, conversation)

    def _sample(self, built: Built, conversation: Conversation) -> Sample:
        roles = [message["role"] for message in conversation.messages]
        ids, owner = np.array(built.token_ids, dtype=np.int32), np.array(built.message_indices, dtype=np.int64)
        # The one more is for tokens that belong to no message, whose owner is -1.
        turns = np.array([role == "assistant" for role in roles] + [False])
        selected = np.array([*selected_messages(conversation, self._options), False])
        said, joined = np.array(built.sampled_mask, np.bool_) & turns[owner], 0
        mask = said & selected[owner]
        if self._bodies:
            bodies = np.array([role in self._bodies for role in roles] + [False])
            body = np.array(built.is_content, np.bool_) & bodies[owner]
            mixed = self._joined(ids, np.where(body & selected[owner], owner, -1), conversation)
            said, joined = said | body, int(np.count_nonzero(mixed))
            mask = said & selected[owner] & ~mixed
        if turns[-2] and not self._is_closed(ids[said]):
            # A turn that only the next one would have closed. Whoever answers has to stop there all the same.
            ids, mask = np.append(ids, np.int32(self._stop_ids[0])), np.append(mask, selected[-2])
        return Sample(input_ids=ids, loss_mask=mask, joined=joined)

    def _joined(
        self, ids: NDArray[np.int32], owner: NDArray[np.int64], conversation: Conversation
    ) -> NDArray[np.bool_]:
        """Which tokens of bodies hold scaffolding too: `}` with the line break that the template writes behind it.

        `owner`: the message of each token of a body, or -1. The package counts them among the body.
        """
        joined = np.zeros(len(ids), np.bool_)
        for index in np.unique(owner[owner >= 0]).tolist():
            at, content = np.flatnonzero(owner == index), conversation.messages[index].get("content")
            text: str = self._tokenizer.decode(ids[at])
            if not isinstance(content, str) or text.strip() != content.strip():
                continue  # a body that the template writes in another way, as JSON for instance
            said = content if content in text else content.strip()
            before = text.find(said)
            joined[at[: self._holding(ids[at], before)]] = True
            joined[at[::-1][: self._holding(ids[at], len(text) - before - len(said), from_end=True)]] = True
        return joined

    def _holding(self, ids: NDArray[np.int32], length: int, *, from_end: bool = False) -> int:
        """How many tokens at the beginning, or at the end, hold so many characters."""
        parts = (ids[len(ids) - count :] if from_end else ids[:count] for count in range(len(ids) + 1))
        return next(count for count, part in enumerate(parts) if len(self._tokenizer.decode(part)) >= length)

    def _is_closed(self, said: NDArray[np.int32]) -> bool:
        return len(said) > 0 and int(said[-1]) in self._stop_ids


def config_of(name: str) -> Any:  # noqa: ANN401 - each family has a type of its own
    """How the package renders a family: as it is by default, but that no clock has a say.

    Raises whatever the package raises for a family that there is not.
    """
    from renderers.configs import config_from_name  # noqa: PLC0415

    config = config_from_name(name)
    if getattr(config, "conversation_start_date", "") is None:
        return config.model_copy(update={"conversation_start_date": DAY.isoformat()})
    return config


def family_of(tokenizer: Tokenizer, options: RenderOptions) -> FamilyRenderer | None:
    """The renderer of the family that the options name, or, for `auto`, of this very model; None if there is none.

    Raises `InvalidConfigError` for a family that there is not, or that does not suit the tokenizer or its template. For
    `auto` a template that writes otherwise wins: a name may be that of several models.
    """
    from renderers.base import MODEL_RENDERER_MAP, create_renderer  # noqa: PLC0415

    name = MODEL_RENDERER_MAP.get(tokenizer.name_or_path) if options.family == "auto" else options.family
    if name is None:
        return None
    places = name not in TURNS_BY_CONSTRUCTION or set(options.roles) != {"assistant"}
    lean = LeanTokenizer(tokenizer, places=places) if getattr(tokenizer, "is_fast", False) else tokenizer
    try:
        renderer = create_renderer(lean, config_of(name))
    except Exception as error:
        raise InvalidConfigError(
            f"family = {name!r} cannot render with the tokenizer {tokenizer.name_or_path!r} ({error}): "
            "use `template`, or the family of this model"
        ) from error
    probe = renderer.render([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    if not probe.sampled_mask or (places and not probe.is_content):
        raise InvalidConfigError(
            f"family = {name!r} cannot tell body from scaffolding with the tokenizer {tokenizer.name_or_path!r}, "
            "which gives no offsets: use a fast tokenizer (tokenizer.json)"
        )
    own = OwnTemplate(tokenizer) if getattr(tokenizer, "is_fast", False) and tokenizer.chat_template else None
    if own is not None and (where := own.parting(renderer)) is not None:
        if options.family == "auto":
            return None
        raise InvalidConfigError(
            f"family = {name!r} and the chat template in '{options.tokenizer}' do not write the same, {where}. Which "
            "is the model's? Use family = template; or take the template out of the tokenizer's directory"
        )
    return FamilyRenderer(renderer, tokenizer, name=name, options=options, own=own)
