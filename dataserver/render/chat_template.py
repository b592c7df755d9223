"""A tokenizer's chat template: conversations to text, and where the template says that the model speaks.

`apply_chat_template` of `transformers` copies every message several times over before it renders, which takes longer
than rendering itself. Messages here are plain JSON already, so the template is called directly, as `transformers`
compiles it (see `sandbox`): with its filters and its `{% generation %}`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, TypeAlias

from dataserver.errors import InvalidConfigError
from dataserver.render.conversation import Json, Message, RowError
from dataserver.render.lean_tokenizer import Tokenizer
from dataserver.render.sandbox import compiled

# What jinja compiles a template to.
Compiled: TypeAlias = Any

DAY: Final = date(2025, 6, 28)
"""Written where today's date would be, which no sample may depend on."""

_GENERATION: Final = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `begin` up to `end` of a text."""

    begin: int
    end: int


class ChatTemplate:
    """`tokenizer`: one of `transformers` with a chat template. Raises `InvalidConfigError` for one that is none."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        from transformers.utils.chat_template_utils import _alias_reasoning_fields  # noqa: PLC0415

        try:
            # A model may have one template for conversations with tools, and another for those without.
            sources = [tokenizer.get_chat_template(), tokenizer.get_chat_template(tools=[{}])]
            self._plain, self._with_tools = map(compiled, sources)
        except Exception as error:  # jinja raises whatever its parts do
            raise InvalidConfigError(f"the chat template cannot be compiled ({error})") from error
        self._aliased = _alias_reasoning_fields
        self._no_clock = _no_clock()
        self._special: Mapping[str, str] = dict(tokenizer.special_tokens_map)
        self.marks_turns = all(_GENERATION.search(source) for source in sources)

    def prepared(self, messages: Sequence[Message]) -> list[Message]:
        """`messages` with what was thought under every name by which templates ask for it."""
        aliased: list[Message] = self._aliased(list(messages))
        return aliased

    def text(self, messages: Sequence[Message], tools: Sequence[Json], *, opened: bool = False) -> str:
        """The text of `messages`; `opened`: with the opening of an assistant turn behind it. Raises `RowError`."""
        template, variables = self._call(messages, tools, opened=opened)
        with _refusals_told():
            text: str = template.render(variables)
        return _checked(text)

    def marked_text(self, messages: Sequence[Message], tools: Sequence[Json]) -> tuple[str, list[Span]]:
        """The text, and what the template has between `{% generation %}` and `{% endgeneration %}`.

        Raises `RowError`.
        """
        template, variables = self._call(messages, tools)
        blocks: list[str] = []
        marks: list[tuple[int, int]] = []
        with _refusals_told(), template.environment.activate_tracker(blocks, marks):
            known = 0
            for block in template.generate(variables):
                # A mark counts from the blocks so far, which is its place only where it is a block of its own.
                if marks[known:] and [end - begin for begin, end in marks[known:]] != [len(block)]:
                    raise RowError("the chat template has `generation` inside of a macro, where its place is not known")
                known = len(marks)
                blocks.append(block)
        return _checked("".join(blocks)), [Span(*mark) for mark in marks]

    def _call(
        self, messages: Sequence[Message], tools: Sequence[Json], *, opened: bool = False
    ) -> tuple[Compiled, dict[str, Json]]:
        variables = {
            **self._special, "messages": list(messages), "tools": list(tools) or None, "documents": None,
            "add_generation_prompt": opened, "strftime_now": self._no_clock,
        }  # fmt: skip
        return (self._with_tools if tools else self._plain), variables


def _no_clock() -> Any:  # noqa: ANN401 - what jinja takes for nothing
    """Whoever asks whether there is a clock hears of none, and names a date itself; others read a fixed one."""
    from jinja2 import Undefined  # noqa: PLC0415

    class NoClock(Undefined):
        # What jinja asks of whatever is called.
        unsafe_callable = alters_data = False
        jinja_pass_arg = None

        def __call__(self, *form: Any, **_: Any) -> Any:  # noqa: ANN401 - as it is typed where it fails
            return DAY.strftime(*form)

    return NoClock(name="strftime_now")


@contextmanager
def _refusals_told() -> Iterator[None]:
    from jinja2 import TemplateError  # noqa: PLC0415

    try:
        yield
    except (TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise RowError(f"the chat template refuses it ({type(error).__name__}: {error})") from error


def _checked(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"it holds half of a surrogate pair, which is no text ({error})") from error
    return text
