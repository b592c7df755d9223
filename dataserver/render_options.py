"""What decides how a conversation becomes tokens and a mask."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, ValidationError

from dataserver.errors import InvalidConfigError
from dataserver.settings import GivenPath, Settings, faults_of

Role = Literal["system", "developer", "user", "assistant", "tool"]


class TrainOn(StrEnum):
    """Which assistant turns are targets."""

    ALL = "all"
    LAST = "last"


class OnError(StrEnum):
    """What happens to a row that is no conversation, or that the template cannot render."""

    STOP = "stop"
    COLLECT = "collect"


class RenderOptions(Settings):
    """How conversations become samples."""

    tokenizer: GivenPath
    """Directory of a tokenizer: `tokenizer.json`, `tokenizer_config.json`, and a chat template."""
    family: str = "auto"
    """`auto`: the renderer that the `renderers` package has for this very model, else the chat template.
    `template`: the chat template in any case. Or the name of a family of that package, for instance `qwen3`."""
    roles: tuple[Role, ...] = Field(default=("assistant",), min_length=1)
    """Whose words are targets. Of roles other than assistant the body alone is, never what the template puts around."""
    train_on: TrainOn = TrainOn.ALL
    """`all` assistant turns, or the `last` one only."""
    max_length: int | None = Field(default=None, ge=2)
    """Longer samples are cut to so many tokens; absent: written whole, and cut when they are served."""
    on_error: OnError = OnError.STOP
    """`stop` at the first bad row, or `collect` bad rows with the reason into `_rejects.jsonl`."""


def render_options(**settings: object) -> RenderOptions:
    """Check `settings`; raise `InvalidConfigError` naming each option that is wrong."""
    try:
        return RenderOptions.model_validate(settings)
    except ValidationError as error:
        raise InvalidConfigError(f"rendering refused: {faults_of(error, 'options')}") from error
