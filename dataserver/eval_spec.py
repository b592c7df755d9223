"""What an evaluation reads: a held-out store in order, once, packed without reordering."""

from typing import Self

from pydantic import Field, model_validator

from dataserver.run_spec import (
    MAX_COUNT,
    MAX_MICRO_BATCH_TOKENS,
    BatchSpec,
    LongRows,
    OrderSpec,
    PackingPolicy,
    RunSpec,
    Shuffle,
    Source,
    Spec,
)


class EvalSpec(Spec):
    """Which samples of a held-out store an evaluation reads, and how they are packed."""

    store: str = Field(min_length=1)
    """Name of the store on the server."""
    max_length: int = Field(ge=2, le=MAX_MICRO_BATCH_TOKENS)
    """Longest sample that is served, in tokens."""
    long_rows: LongRows = LongRows.TRUNCATE
    """What happens to longer text rows."""
    micro_batch_tokens: int = Field(ge=2, le=MAX_MICRO_BATCH_TOKENS)
    """Capacity of a micro-batch in tokens, counting each sample's aligned footprint."""
    alignment: int = Field(default=1, ge=1, le=65536)
    """Each sample's footprint is rounded up to a multiple of this many tokens."""
    pad_to: int = Field(default=0, ge=0, le=MAX_MICRO_BATCH_TOKENS)
    """Each micro-batch is padded to a multiple of this many positions; 0: not padded."""
    max_samples: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Only so many samples, the first that are kept."""
    vocab_size: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Size of the model's vocabulary; a store with a token at or above it is refused."""
    images: bool = False
    """Whether rows with images are taken, by a vision-language model."""

    @model_validator(mode="after")
    def _can_be_carried_out(self) -> Self:
        self.as_run()
        return self

    def as_run(self) -> RunSpec:
        """The same as a run: one epoch in store order, a step being one round.

        Samples fill micro-batches one after another, so what a micro-batch holds does not depend on how many ranks
        share them, and no micro-batch but those of the last round is empty.
        """
        order = OrderSpec(
            # A held-out loss counts every target alike.
            sources=(Source(store=self.store, loss_weight=False),),
            shuffle=Shuffle.SEQUENTIAL,
            max_length=self.max_length,
            long_rows=self.long_rows,
        )
        batch = BatchSpec(
            step_rounds=1,
            micro_batch_tokens=self.micro_batch_tokens,
            policy=PackingPolicy.SEQUENTIAL,
            alignment=self.alignment,
            pad_to=self.pad_to,
            max_epochs=1,
        )
        return RunSpec(order=order, batch=batch, vocab_size=self.vocab_size, images=self.images)
