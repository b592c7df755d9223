"""What a run consumes (order spec) and how it is cut and packed (batch spec).

This is `[run]` in a trainer's TOML. Stores are named, as the server knows them; a spec never
carries a path.
"""

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from dataserver.weighting import DEFAULT_STOPPING, DEFAULT_UNIT, Stopping, WeightUnit, check_weights

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

# Counter-based permutations mix two halves of a row number; see `sampling.permutation`.
MAX_SEED = 2**63 - 1

# Counts that no run reaches; the contract's integers end at 2^63 - 1, and sums of two stay below.
MAX_COUNT = 2**62

# A micro-batch is one message; 2^28 tokens of 4 bytes with their mask stay below the 2 GiB
# at which protobuf ends the process.
MAX_MICRO_BATCH_TOKENS = 2**28


class Shuffle(StrEnum):
    """In which order the rows of an epoch come."""

    SEQUENTIAL = "sequential"
    FULL = "full"
    BLOCK = "block"
    CUSTOM = "custom"


# Blocks whose rows are shuffled together: so many make a window a fair sample of its store
# (a composition variance of 1.5 times that of a full shuffle), and fit a cache.
DEFAULT_BLOCK_WINDOW = 64


class LongRows(StrEnum):
    """What happens to text rows that are longer than `max_length`."""

    TRUNCATE = "truncate"
    DROP = "drop"
    REFUSE = "refuse"
    SPLIT = "split"


class PackingPolicy(StrEnum):
    """How samples are packed into micro-batches; `packing.pack` says what each does."""

    BALANCED = "balanced"
    FIRST_FIT = "first_fit"
    COST_BALANCED = "cost_balanced"
    SEQUENTIAL = "sequential"
    NONE = "none"


def check_run_name(name: str) -> str:
    """Return `name`; raise `ValueError` unless it is a legal run name."""
    if not RUN_NAME.fullmatch(name):
        raise ValueError(
            f"run name {name!r}: use letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 128"
        )
    return name


RunName = Annotated[str, AfterValidator(check_run_name)]


class Spec(BaseModel):
    """Base of all specs: immutable, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Source(Spec):
    """One store in the mixture."""

    store: str = Field(min_length=1)
    """Name of the store on the server."""
    weight: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Share in the mixture, relative to the other sources' weights: give all of them one, or none. 0 turns the source
    off. Without weights every row of every source comes once an epoch."""
    loss_weight: bool | None = None
    """Whether targets count by the store's column `loss_weight`. To be said where a store has one; `true` needs one."""


class OrderSpec(Spec):
    """What decides the order of samples."""

    sources: tuple[Source, ...] = Field(min_length=1)
    """The stores, in a fixed order."""
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    """Seed of every permutation."""
    shuffle: Shuffle = Shuffle.FULL
    """`full`: one permutation of all rows per epoch. `block`: rows are mixed within windows of row groups, each of
    which is read once an epoch. `sequential`: store order. `custom`: what `sampler` says."""
    block_window: int = Field(default=DEFAULT_BLOCK_WINDOW, ge=1, le=65536)
    """Blocks (row groups, record batches) of a window of `block`; the cache should hold as many, decoded."""
    sampler: str = ""
    """Name of the sampler of `custom`: an entry point of the group `dataserver.samplers` on the server."""
    weight_unit: WeightUnit = DEFAULT_UNIT
    """What the weights are shares of: `samples`, or `tokens` as they are served."""
    stopping: Stopping = DEFAULT_STOPPING
    """When an epoch of weighted sources ends. `first_exhausted`: with the first source whose rows are all drawn.
    `all_exhausted`: with the last one, while the others repeat, shuffled anew.
    `all_exhausted_without_replacement`: the same, but a source that is exhausted stays out. `with_replacement`: rows
    are drawn independently of each other, as many an epoch as there are."""
    max_length: int = Field(ge=2, le=MAX_MICRO_BATCH_TOKENS)
    """Longest sample that is served, in tokens."""
    long_rows: LongRows = LongRows.TRUNCATE
    """What happens to longer text rows: `truncate` to the prefix, `drop`, `refuse` the store, or `split` into
    pieces, each a sample of its own (only for stores with `loss_mask = "all"`)."""

    @model_validator(mode="after")
    def _sources_differ(self) -> Self:
        names = [source.store for source in self.sources]
        if len(set(names)) != len(names):
            raise ValueError(f"sources name a store twice: {names}")
        return self

    @property
    def weighted(self) -> bool:
        """Whether sources are drawn by weight, and not united."""
        return self.sources[0].weight is not None

    @model_validator(mode="after")
    def _weights_agree(self) -> Self:
        check_weights([source.weight for source in self.sources], self.weight_unit, self.stopping)
        return self

    @model_validator(mode="after")
    def _shuffle_agrees(self) -> Self:
        if (self.shuffle is Shuffle.CUSTOM) != bool(self.sampler):
            raise ValueError(f"sampler = {self.sampler!r} with shuffle = {self.shuffle}: `custom` and no other has one")
        if self.shuffle is not Shuffle.BLOCK and self.block_window != DEFAULT_BLOCK_WINDOW:
            raise ValueError(f"block_window = {self.block_window} is for shuffle = block, not for {self.shuffle}")
        if self.stopping is Stopping.WITH_REPLACEMENT and self.shuffle is not Shuffle.FULL:
            raise ValueError(
                f"stopping = with_replacement draws rows independently of each other: shuffle = {self.shuffle} has "
                "nothing to order; use `full`"
            )
        return self


class BatchSpec(Spec):
    """How the order is cut into steps and packed into micro-batches."""

    step_tokens: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Tokens of one step: the largest prefix of whole samples that fits. One of the three budgets is given."""
    step_samples: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Samples of one step."""
    step_rounds: int | None = Field(default=None, ge=1, le=4096)
    """Rounds of one step, so that accumulation is constant: as many whole samples as `policy` packs into them.
    Where a step ends then depends on the number of ranks; the world size may still change between steps."""
    micro_batch_tokens: int = Field(ge=2, le=MAX_MICRO_BATCH_TOKENS)
    """Capacity of a micro-batch in tokens, counting each sample's aligned footprint."""
    policy: PackingPolicy = PackingPolicy.BALANCED
    """How samples share micro-batches."""
    alignment: int = Field(default=1, ge=1, le=65536)
    """Each sample's footprint is rounded up to a multiple of this many tokens: the tensor-parallel size, with
    context parallelism twice the product of both sizes, with FP8 the least common multiple of that and 16 times the
    context-parallel size."""
    pad_to: int = Field(default=0, ge=0, le=MAX_MICRO_BATCH_TOKENS)
    """Each micro-batch is padded to a multiple of this many positions, which divides `micro_batch_tokens`: fixed shapes
    for compilers. `capacity`: to `micro_batch_tokens`. 0 or `none`: not padded."""
    lookahead_steps: int = Field(default=1, ge=1, le=1024)
    """Steps that are packed together; 1 for no lookahead. Not with `step_rounds`."""
    max_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """The run ends after this many steps."""
    max_epochs: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """The run ends after this many epochs."""
    cost_linear: int = Field(default=1, ge=0, le=MAX_COUNT)
    """Relative cost of a token."""
    cost_quadratic: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Relative cost of a squared token: attention, per sample."""

    @model_validator(mode="before")
    @classmethod
    def _in_words(cls, fields: object) -> object:
        if not isinstance(fields, dict):
            return fields
        # `none` of a flag is nothing, and of these two fields a word.
        named = fields | {name: "none" for name in ("pad_to", "policy") if fields.get(name, "") is None}
        if isinstance(word := named.get("pad_to"), str):
            numbers = {"none": 0, "capacity": named.get("micro_batch_tokens")}
            named["pad_to"] = numbers.get(word, word)
        return named

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        budgets = (self.step_tokens, self.step_samples, self.step_rounds)
        if sum(budget is not None for budget in budgets) != 1:
            raise ValueError("give exactly one of step_tokens, step_samples and step_rounds")
        if self.step_rounds is not None and self.lookahead_steps > 1:
            raise ValueError(
                f"lookahead_steps = {self.lookahead_steps} with step_rounds: a window moves samples between its steps, "
                "and then they no longer have the same number of rounds; use step_tokens with lookahead_steps"
            )
        if self.pad_to and (self.micro_batch_tokens % self.pad_to or self.pad_to % self.alignment):
            raise ValueError(
                f"pad_to = {self.pad_to} has to divide micro_batch_tokens = {self.micro_batch_tokens} and to be "
                f"a multiple of alignment = {self.alignment}"
            )
        if self.cost_linear == 0 and self.cost_quadratic == 0:
            raise ValueError("cost_linear and cost_quadratic are both 0: every plan would look balanced")
        return self


class RunSpec(Spec):
    """What a run consumes and how it is cut."""

    order: OrderSpec
    """What decides the order of samples."""
    batch: BatchSpec
    """How the order is cut and packed. An attempt may bring another one."""
    vocab_size: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Size of the model's vocabulary; a store with a token at or above it is refused."""
    images: bool = False
    """Whether the model takes images; without it a store that has rows with images is refused."""

    @model_validator(mode="after")
    def _longest_sample_fits(self) -> Self:
        check_fits(self.order, self.batch)
        return self


def check_fits(order: OrderSpec, batch: BatchSpec) -> None:
    """Raise `ValueError` unless the longest sample fits a micro-batch and a step."""
    footprint = -(-order.max_length // batch.alignment) * batch.alignment
    if footprint > batch.micro_batch_tokens:
        raise ValueError(
            f"micro_batch_tokens = {batch.micro_batch_tokens} is below the {footprint} tokens that a sample of "
            f"max_length = {order.max_length} takes at alignment {batch.alignment}"
        )
    if batch.step_tokens is not None and batch.step_tokens < order.max_length:
        raise ValueError(
            f"step_tokens = {batch.step_tokens} is below max_length = {order.max_length}: "
            "a longest sample would fit no step"
        )
