"""A stage and this server's stores: its sample table, and its place in the plan of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dataserver.batching.table import SourceTable
from dataserver.errors import DataServerError, InvalidSpecError, StoreDamagedError
from dataserver.planning.fingerprint import order_fingerprint
from dataserver.planning.plan import Plan
from dataserver.planning.stages import PlannedStage, Stage
from dataserver.run_spec import BatchSpec, OrderSpec, check_fits
from dataserver.sampling.build import sample_order
from dataserver.sampling.union import plain_union
from dataserver.stores import Admission, ServedRows, Store
from dataserver.streaming.catalog import StoreCatalog
from dataserver.streaming.columns import check_admission, modalities, source_table
from dataserver.streaming.message_size import check_message_size
from dataserver.streaming.samplers import sampler_of


@dataclass(frozen=True, kw_only=True)
class StageContext:
    """What serving a stage needs. Not slotted, for what is worked out once."""

    order: OrderSpec
    stores: tuple[Store, ...]
    views: tuple[ServedRows, ...]
    table: SourceTable
    planned: PlannedStage

    @property
    def fingerprint(self) -> str:
        """Of the stages up to this one."""
        return self.planned.fingerprint

    @property
    def epoch_samples(self) -> int:
        """Samples of an epoch."""
        return self.planned.order.epoch_size

    @property
    def store_names(self) -> tuple[str, ...]:
        """The stores, by the number of their source."""
        return tuple(source.store for source in self.order.sources)

    @property
    def passes(self) -> tuple[float, ...]:
        """How often an epoch takes each row of each source."""
        counts = self.planned.order.epoch_counts
        return tuple(count / view.rows if count else 0.0 for count, view in zip(counts, self.views, strict=True))

    @cached_property
    def epoch_tokens(self) -> tuple[float, ...]:
        """Tokens that an epoch takes of each source, as `tokens_of` its rows."""
        return self.tokens_of(self.planned.order.epoch_counts)

    @cached_property
    def token_shares(self) -> Mapping[str, float]:
        """The part of an epoch's tokens that comes from each store; empty where `epoch_tokens` are not known."""
        total = sum(self.epoch_tokens)
        return {store: tokens / total for store, tokens in zip(self.store_names, self.epoch_tokens, strict=False)}

    def tokens_of(self, rows: Sequence[float]) -> tuple[float, ...]:
        """Tokens of so many rows of each source, by the mean lengths of its rows.

        Empty where one of them has lengths that are only known once rows are read.
        """
        if any(count and not view.kept_tokens for count, view in zip(rows, self.views, strict=True)):
            return ()
        return tuple(
            count * view.kept_tokens / view.rows if count else 0.0 for count, view in zip(rows, self.views, strict=True)
        )

    def check_unchanged(self) -> None:
        """Raise `StoreDamagedError` if a store changed since it was admitted. Blocks on the file system."""
        for store in self.stores:
            store.check_unchanged()

    def check_vocabulary(self, vocab_size: int | None) -> None:
        """Raise `InvalidSpecError` for a store with a token that the model does not know."""
        for name, store in zip(self.store_names, self.stores, strict=True):
            if store.admission is Admission.EAGER:
                _check_token(name, store.max_token, store.max_token_row, vocab_size, InvalidSpecError)

    def check_planned_vocabulary(self, plan: Plan, vocab_size: int | None) -> None:
        """Raise `StoreDamagedError` for such a token in a block of a lazily admitted store that a step reads."""
        for source, (name, store) in enumerate(zip(self.store_names, self.stores, strict=True)):
            if vocab_size is not None and store.admission is Admission.LAZY:
                token, row = self.views[source].highest_token(plan.samples.row[plan.samples.source == source])
                _check_token(name, token, row, vocab_size, StoreDamagedError)

    def check_images(self, *, allowed: bool) -> None:
        """Raise `InvalidSpecError` for a store with images, unless the model takes them."""
        for name, store in zip(self.store_names, self.stores, strict=True):
            if store.images is not None and not allowed:
                raise InvalidSpecError(
                    f"store {name!r} has images in {store.images.rows} of its rows, the first in row "
                    f"{store.images.first_row}, and the run is for a model of text: set images = true in the run spec "
                    "of a vision-language model, or drop the image columns to train on the text alone",
                    store=name,
                    row=store.images.first_row,
                )

    def check_batch(self, batch: BatchSpec, max_message_bytes: int, *, short_steps: bool = False) -> None:
        """Raise `InvalidSpecError` when a longest sample or a largest micro-batch would not fit.

        And, unless `short_steps` are all right, where steps would end wherever text and images follow each other.
        """
        try:
            check_fits(self.order, batch)
        except ValueError as error:
            raise InvalidSpecError(str(error)) from error
        check_message_size(batch, self.table, self.stores, max_message_bytes)
        if not short_steps and batch.step_rounds == 1 and len(modalities(self.stores)) > 1:
            raise InvalidSpecError(
                "step_rounds = 1 over rows of text and rows with images: no round holds both, so that a step would end "
                "wherever one kind follows the other. Give at least 2, or step_tokens or step_samples"
            )


def _check_token(name: str, token: int, row: int, vocab_size: int | None, error: type[DataServerError]) -> None:
    if vocab_size is not None and token >= vocab_size:
        raise error(
            f"store {name!r} row {row} holds token {token}, but vocab_size = {vocab_size}: is this the right "
            "tokenizer?",
            store=name,
            row=row,
        )


def build_stage(
    stage: Stage, catalog: StoreCatalog, *, number: int = 0, before: str = "", most_samples: int | None = None
) -> StageContext:
    """The stage number `number` of a run, after the one with the fingerprint `before`.

    Blocks while the stores' indexes are read. With `most_samples`, only so many of each source.
    """
    order = stage.order
    stores = tuple(catalog.get(source.store) for source in order.sources)
    check_admission(order, stores)
    views = tuple(store.view(order.max_length, order.long_rows) for store in stores)
    table = source_table(order, stores, views)
    sampler = sampler_of(order)
    samples = sample_order(order, views, stage=number, sampler=sampler)
    if most_samples is not None:
        samples = plain_union(tuple(min(size, most_samples) for size in table.sizes), order.seed, order.shuffle)
    fingerprint = order_fingerprint(
        order,
        [store.fingerprint for store in stores],
        before=before,
        first_step=stage.first_step,
        sampler=sampler.identity if sampler else "",
    )
    planned = PlannedStage(first_step=stage.first_step, order=samples, table=table, fingerprint=fingerprint)
    return StageContext(order=order, stores=stores, views=views, table=table, planned=planned)
