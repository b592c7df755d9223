"""Chat templates compiled as `transformers` compiles them, in its sandbox, but quicker at what they do all the time.

Templates read fields of messages, ask loops where they are and call methods of texts. Jinja looks a field up as an
attribute first, and asks of each one it finds what it could do to a list. A plain object of JSON has the attributes of
`dict`, and loops and texts offer nothing that changes anything, so these are answered at once; the sandbox decides
about everything else.
"""

from contextlib import suppress
from functools import cache
from types import BuiltinMethodType
from typing import Any, Final

_OF_OBJECTS: Final = frozenset(dir(dict))
# `format` and `format_map` reach into their arguments: the sandbox has its own.
_OF_TEXTS: Final = frozenset(name for name in dir(str) if not name.startswith(("_", "format")))
_OF_LOOPS: Final = frozenset(("first", "last", "index", "index0", "revindex", "revindex0", "length"))


def compiled(source: str) -> Any:  # noqa: ANN401 - a template of jinja
    """The template; raises whatever jinja and its parts raise."""
    from transformers.utils import chat_template_utils as utils  # noqa: PLC0415

    plain = utils._compile_jinja_template(source).environment
    kind: Any = type(plain)
    environment = _environment_of(kind)(
        trim_blocks=plain.trim_blocks,
        lstrip_blocks=plain.lstrip_blocks,
        extensions=[type(extension) for extension in plain.extensions.values()],
    )
    environment.filters, environment.globals = plain.filters, plain.globals
    template = environment.from_string(source)
    # One object: they are copied for each conversation.
    template.globals = dict(template.globals)
    return template


@cache
def _environment_of(plain: Any) -> Any:  # noqa: ANN401 - classes of jinja
    from jinja2.runtime import LoopContext  # noqa: PLC0415
    from jinja2.utils import Namespace  # noqa: PLC0415

    safe = {str: _OF_TEXTS, LoopContext: _OF_LOOPS}

    class Environment(plain):  # type: ignore[misc]
        def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401
            kind = type(obj)
            if kind is dict and attribute not in _OF_OBJECTS:
                return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
            if attribute in safe.get(kind, ()):
                return getattr(obj, attribute)
            if isinstance(obj, Namespace) and not attribute.startswith("_"):
                with suppress(AttributeError):
                    return getattr(obj, attribute)
            return super().getattr(obj, attribute)

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N805
            if type(__obj) is BuiltinMethodType and type(__obj.__self__) is str and __obj.__name__ in _OF_TEXTS:
                kwargs.pop("_block_vars", None)
                kwargs.pop("_loop_vars", None)
                return __obj(*args, **kwargs)
            return super().call(__context, __obj, *args, **kwargs)

    return Environment
