"""Rendering by the `renderers` package, which builds every model family's turns from their parts.

It knows of each token which message it belongs to, whether the model would have sampled it, and whether it is body or
scaffolding, so that nothing has to be searched for. https://github.com/PrimeIntellect-ai/renderers
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidConfigError
from dataserver.render.conversation import Conversation, RowError
from dataserver.render.sample import Sample, selected_messages
from dataserver.render_options import RenderOptions

# A renderer of the package, and a tokenizer of `transformers`: neither has types that hold over families.
PackageRenderer: TypeAlias = Any
Tokenizer: TypeAlias = Any

# Texts up to so many characters, as a template's own words are, are tokenized once.
_SHORT_CHARACTERS: Final = 64
_SHORT_TEXTS: Final = 4096


class FamilyRenderer:
    """See `sample.Renderer`."""

    def __init__(self, renderer: PackageRenderer, name: str, options: RenderOptions) -> None:
        self._renderer = renderer
        self._options = options
        self._bodies = frozenset(options.roles) - {"assistant"}
        self._stop_ids: list[int] = list(renderer.get_stop_token_ids())
        self.name = name

    def render(self, conversation: Conversation) -> Sample:
        """See `sample.Renderer`."""
        messages: list[Any] = list(conversation.messages)
        try:
            built = self._renderer.render(messages, tools=list(conversation.tools) or None)
        except Exception as error:  # the package raises whatever its families do
            raise RowError(f"the renderer {self.name} refuses it ({type(error).__name__}: {error})") from error
        ids, owner = np.array(built.token_ids, dtype=np.int32), np.array(built.message_indices, dtype=np.int64)
        # The one more is for tokens that belong to no message, whose owner is -1.
        turns = np.array([message["role"] == "assistant" for message in messages] + [False])
        bodies = np.array([message["role"] in self._bodies for message in messages] + [False])
        selected = np.array([*selected_messages(conversation, self._options), False])
        sampled, content = np.array(built.sampled_mask, np.bool_), np.array(built.is_content, np.bool_)
        said = (sampled & turns[owner]) | (content & bodies[owner])
        mask = said & selected[owner]
        if turns[-2] and not self._is_closed(ids[said]):
            # A turn that only the next one would have closed. Whoever answers has to stop there all the same.
            ids, mask = np.append(ids, np.int32(self._stop_ids[0])), np.append(mask, selected[-2])
        return Sample(input_ids=ids, loss_mask=mask)

    def _is_closed(self, said: NDArray[np.int32]) -> bool:
        return len(said) > 0 and int(said[-1]) in self._stop_ids


class LeanTokenizer:
    """What the package asks of a tokenizer, by the `tokenizers` package itself.

    The package tokenizes every piece of a turn for itself, and the wrapper that `transformers` has around it takes
    longer than that. Whatever else is asked for is the wrapper's.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._short: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the tokenizer has
        return getattr(self._tokenizer, name)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`."""
        return self._encoded(text, add_special_tokens=add_special_tokens)[0]

    def __call__(
        self, text: str, *, add_special_tokens: bool = True, return_offsets_mapping: bool = False
    ) -> dict[str, Any]:
        """Ids and, if asked for, their places."""
        ids, offsets = self._encoded(text, add_special_tokens=add_special_tokens)
        return {"input_ids": ids, **({"offset_mapping": offsets} if return_offsets_mapping else {})}

    def _encoded(self, text: str, *, add_special_tokens: bool) -> tuple[list[int], list[tuple[int, int]]]:
        is_short = len(text) <= _SHORT_CHARACTERS and not add_special_tokens
        if is_short and (known := self._short.get(text)) is not None:
            return known[0].copy(), known[1].copy()
        encoding = self._backend.encode(text, add_special_tokens=add_special_tokens)
        found = encoding.ids, encoding.offsets
        if is_short and len(self._short) < _SHORT_TEXTS:
            self._short[text] = found[0].copy(), found[1].copy()
        return found


def family_of(tokenizer: Tokenizer, options: RenderOptions) -> FamilyRenderer | None:
    """The renderer of the family that the options name, or, for `auto`, of this very model; None if there is none.

    Raises `InvalidConfigError` for a family that there is not, or that does not suit the tokenizer.
    """
    from renderers.base import MODEL_RENDERER_MAP, create_renderer  # noqa: PLC0415
    from renderers.configs import config_from_name  # noqa: PLC0415

    name = MODEL_RENDERER_MAP.get(tokenizer.name_or_path) if options.family == "auto" else options.family
    if name is None:
        return None
    lean = LeanTokenizer(tokenizer) if getattr(tokenizer, "is_fast", False) else tokenizer
    try:
        renderer = create_renderer(lean, config_from_name(name))
    except Exception as error:
        raise InvalidConfigError(
            f"family = {name!r} cannot render with the tokenizer {tokenizer.name_or_path!r} ({error}): "
            "use `template`, or the family of this model"
        ) from error
    probe = renderer.render([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    if not probe.sampled_mask or not probe.is_content:
        raise InvalidConfigError(
            f"family = {name!r} cannot tell body from scaffolding with the tokenizer {tokenizer.name_or_path!r}, "
            "which gives no offsets: use a fast tokenizer (tokenizer.json)"
        )
    return FamilyRenderer(renderer, name, options)
