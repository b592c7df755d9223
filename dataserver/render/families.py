"""Rendering by the `renderers` package, which builds every model family's turns from their parts.

It knows of each token which message it belongs to, whether the model would have sampled it, and whether it is body or
scaffolding, so that nothing has to be searched for. https://github.com/PrimeIntellect-ai/renderers
"""

from typing import Any, TypeAlias

from dataserver.errors import InvalidConfigError
from dataserver.render.conversation import Conversation, RowError
from dataserver.render.sample import Sample, selected_messages
from dataserver.render_options import RenderOptions

# A renderer of the package, and a tokenizer of `transformers`: neither has types that hold over families.
PackageRenderer: TypeAlias = Any
Tokenizer: TypeAlias = Any


class FamilyRenderer:
    """See `sample.Renderer`."""

    def __init__(self, renderer: PackageRenderer, name: str, options: RenderOptions) -> None:
        self._renderer = renderer
        self._options = options
        self._bodies = frozenset(options.roles) - {"assistant"}
        self.name = name

    def render(self, conversation: Conversation) -> Sample:
        """See `sample.Renderer`."""
        from renderers.base import build_training_sample  # noqa: PLC0415

        messages: list[Any] = list(conversation.messages)
        try:
            built = build_training_sample(
                self._renderer,
                messages,
                tools=list(conversation.tools) or None,
                role_to_mask=lambda message: message["role"] == "assistant",
                content_sft_roles=self._bodies,
                ensure_final_stop=True,
                message_loss_mask=list(selected_messages(conversation, self._options)),
            )
        except Exception as error:  # the package raises whatever its families do
            raise RowError(f"the renderer {self.name} refuses it ({type(error).__name__}: {error})") from error
        return Sample(input_ids=built.token_ids, loss_mask=built.loss_mask)


def family_of(tokenizer: Tokenizer, options: RenderOptions) -> FamilyRenderer | None:
    """The renderer of the family that the options name, or, for `auto`, of this very model; None if there is none.

    Raises `InvalidConfigError` for a family that there is not, or that does not suit the tokenizer.
    """
    from renderers.base import MODEL_RENDERER_MAP, create_renderer  # noqa: PLC0415
    from renderers.configs import config_from_name  # noqa: PLC0415

    name = MODEL_RENDERER_MAP.get(tokenizer.name_or_path) if options.family == "auto" else options.family
    if name is None:
        return None
    try:
        renderer = create_renderer(tokenizer, config_from_name(name))
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
