"""The tokenizer directory: what it is called by content, and the renderer for it.

`transformers` is imported here, in `chat_template` and in `sandbox` alone: it reads tokenizers and templates, and needs
no torch.
"""

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import xxhash

from dataserver.errors import InvalidConfigError
from dataserver.render.families import family_of
from dataserver.render.lean_tokenizer import Tokenizer
from dataserver.render.sample import Renderer
from dataserver.render.templates import TemplateRenderer
from dataserver.render_options import RenderOptions

RENDER_VERSION: Final = 5
"""Tick it when the same conversation would give other tokens or another mask."""

# Files that decide about tokens and templates; weights beside them do not.
_FILES: Final = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json", "generation_config.json",
    "config.json",
)  # fmt: skip

# Whose versions can change what comes out.
_NOT_INSTALLED: Final = "rendering needs more packages: pip install 'dataserver[render]'"

_PACKAGES: Final = ("renderers", "transformers", "tokenizers", "jinja2")


def render_key(options: RenderOptions) -> str:
    """XXH3-128, in hex, of all that decides what a conversation is rendered to; raises `InvalidConfigError`."""
    digest = xxhash.xxh3_128()
    facts = options.model_dump(mode="json", exclude={"tokenizer", "on_error"})
    try:
        versions = {name: version(name) for name in _PACKAGES}
    except PackageNotFoundError as error:
        raise InvalidConfigError(_NOT_INSTALLED) from error
    digest.update(json.dumps([RENDER_VERSION, facts, versions], sort_keys=True).encode())
    for path in _files(options.tokenizer):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(options.tokenizer)} {len(content)}".encode())
        digest.update(content)
    return digest.hexdigest()


def open_renderer(options: RenderOptions) -> Renderer:
    """The renderer for the tokenizer in the options. Raises `InvalidConfigError` where none is right."""
    tokenizer = load_tokenizer(options.tokenizer)
    if options.family != "template" and (family := family_of(tokenizer, options)) is not None:
        return family
    if not getattr(tokenizer, "is_fast", False):
        raise InvalidConfigError(f"the tokenizer in '{options.tokenizer}' gives no offsets: it needs a tokenizer.json")
    if not tokenizer.chat_template:
        raise InvalidConfigError(
            f"the tokenizer in '{options.tokenizer}' has no chat template: put a chat_template.jinja beside it"
        )
    return TemplateRenderer(tokenizer, options, _stop_ids(tokenizer, options.tokenizer))


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer in `directory`, which runs no code of its own and fetches nothing; raises `InvalidConfigError`."""
    _files(directory)
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 - slow to import, and not installed with every server
    except ImportError as error:
        raise InvalidConfigError(_NOT_INSTALLED) from error
    try:
        return AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the package raises whatever a broken file leads to
        raise InvalidConfigError(f"no tokenizer can be loaded from '{directory}' ({error})") from error


def _files(directory: Path) -> list[Path]:
    found = [directory / name for name in _FILES if (directory / name).is_file()]
    found += sorted((directory / "additional_chat_templates").glob("*.jinja"))
    if not found:
        raise InvalidConfigError(f"'{directory}' holds no tokenizer: expected files such as tokenizer.json in it")
    return found


def _stop_ids(tokenizer: Tokenizer, directory: Path) -> frozenset[int]:
    """The tokens that end a turn: the tokenizer's, and those that the model's generation stops at."""
    stops = {tokenizer.eos_token_id}
    path = directory / "generation_config.json"
    if path.is_file():
        try:
            eos = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError) as error:
            raise InvalidConfigError(f"'{path}' is no JSON object ({error}): copy it again, or remove it") from error
        stops.update(eos if isinstance(eos, list) else [eos])
    stops.discard(None)
    if not stops:
        raise InvalidConfigError(
            f"nothing tells which token ends a turn: '{directory}' names no eos_token, and there is no "
            "generation_config.json with eos_token_id"
        )
    return frozenset(stops)
