"""Conversations rendered to samples, so that training touches text never.

    rows ──conversation──> messages, tools ──renderer──> token ids and mask ──parts──> a store

The tokens are those of the model's own template. Where its turns cannot be told apart with certainty a row is refused,
never guessed: a wrong mask is noticed by nobody.
"""

from dataserver.render.local import LocalEngine
from dataserver.render.source import rendered

__all__ = ["LocalEngine", "rendered"]
