"""A row as a person wants to see it: its words in runs of one kind, and a page of them.

    tokens, mask ──> runs: target | context, words | control token ──> terminal, HTML

A mask that is wrong by one token stands out in colour and nowhere else.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.render.lean_tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Tokens that are alike and follow each other. `is_control`: one control token, as the tokenizer calls it."""

    text: str
    tokens: int
    is_target: bool
    is_control: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """One row of a store. `reason`: why it is not served; empty if it is."""

    row: int
    runs: tuple[Run, ...]
    tokens: int
    targets: int
    reason: str

    @property
    def title(self) -> str:
        """Its figures in a line."""
        share = self.targets / max(self.tokens, 1)
        dropped = f", not served: {self.reason}" if self.reason else ""
        return f"row {self.row}: {self.tokens} tokens, {self.targets} targets ({share:.0%}){self._ends}{dropped}"

    @property
    def _ends(self) -> str:
        """What stretches of targets end with: a turn that is learnt to its end has its stop token there."""
        groups = (list(members) for is_target, members in groupby(self.runs, lambda run: run.is_target) if is_target)
        ends = Counter(group[-1].text if group[-1].is_control else "words" for group in groups)
        if not ends:
            return ""
        stretches = f"{ends.total()} stretch{'' if ends.total() == 1 else 'es'}"
        return f" in {stretches}, ending with {', '.join(f'{text} ({count})' for text, count in ends.most_common())}"


def view_row(
    tokenizer: Tokenizer, row: int, input_ids: NDArray[np.int32], loss_mask: NDArray[np.uint8], reason: str
) -> RowView:
    """The runs of a row. `input_ids`: int32[n], `loss_mask`: uint8[n] of 0 and 1."""
    return RowView(
        row=row,
        runs=tuple(_runs(tokenizer, input_ids.tolist(), loss_mask.tolist())),
        tokens=len(input_ids),
        targets=int(loss_mask[1:].sum()),
        reason=reason,
    )


def _runs(tokenizer: Tokenizer, ids: list[int], mask: list[int]) -> Iterator[Run]:
    """Control tokens alone; the others together, since a character may take several tokens."""
    control = set(tokenizer.added_tokens_decoder)

    def kind(at: int) -> tuple[bool, int]:
        return bool(mask[at]), at if ids[at] in control else -1

    for (is_target, at), members in groupby(range(len(ids)), key=kind):
        tokens = [ids[member] for member in members]
        yield Run(text=tokenizer.decode(tokens), tokens=len(tokens), is_target=is_target, is_control=at >= 0)


def visible(run: Run) -> str:
    """Its text, with a sign for each line break that is a target: a colour does not show on white space."""
    return run.text.replace("\n", "↵\n") if run.is_target else run.text


_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; color: #222; background: #fff }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid #ccc; border-radius: 6px; padding: 1rem }}
.target {{ background: #bfe8c5 }} .context {{ color: #777 }}
.control {{ font-weight: bold; outline: 1px solid #999; border-radius: 3px }}
</style></head><body><h1>{title}</h1>
<p><span class="target">targets</span> <span class="context">context</span>
<span class="control">control tokens</span>, and ↵ where a line break is a target</p>
{rows}</body></html>
"""


def page(title: str, rows: Iterable[RowView]) -> str:
    """A page of rows that needs nothing but itself."""
    return _PAGE.format(title=escape(title), rows="".join(map(_row_on_page, rows)))


def _row_on_page(view: RowView) -> str:
    runs = "".join(
        f'<span class="{"target" if run.is_target else "context"}{" control" if run.is_control else ""}">'
        f"{escape(visible(run))}</span>"
        for run in view.runs
    )
    return f"<h2>{escape(view.title)}</h2><pre>{runs}</pre>\n"
