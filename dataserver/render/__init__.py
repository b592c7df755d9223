"""Conversations rendered to samples, so that training touches text never.

    rows ──conversation──> messages, tools ──renderer──> token ids and mask ──parts──> a store

The tokens are those of the model's own template. Where its turns cannot be told apart with certainty a row is refused,
never guessed: a wrong mask is noticed by nobody.
"""

from dataserver.render.job import render_store
from dataserver.render.local import LocalEngine
from dataserver.render.options import OnError, RenderOptions, TrainOn

__all__ = ["LocalEngine", "OnError", "RenderOptions", "TrainOn", "render_store"]
