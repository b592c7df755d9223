"""What a run takes of its stores besides tokens and masks, and in which order it may take it of which store."""

from collections.abc import Sequence

from dataserver.batching.table import ImageFormat, SourceTable
from dataserver.errors import InvalidSpecError
from dataserver.run_spec import OrderSpec, Shuffle, Source
from dataserver.stores import Admission, ServedRows, Store


def source_table(order: OrderSpec, stores: Sequence[Store], views: Sequence[ServedRows]) -> SourceTable:
    """The samples of an order.

    Raises `InvalidSpecError` for what its sources say about weights, and for images that cannot share a micro-batch.
    """
    return SourceTable(
        views,
        max(store.token_bytes for store in stores),
        weighted=[_is_weighted(source, store) for source, store in zip(order.sources, stores, strict=True)],
        images=_image_format(order, stores),
    )


def check_admission(order: OrderSpec, stores: Sequence[Store]) -> None:
    """Raise `InvalidSpecError` for an order that would have a lazily admitted store fetched as a whole at once."""
    if order.shuffle is not Shuffle.FULL:
        return
    for source, store in zip(order.sources, stores, strict=True):
        if store.admission is Admission.LAZY and store.is_far:
            raise InvalidSpecError(
                f"store {source.store!r} lies in object storage and is admitted lazily, and shuffle = full takes the "
                "rows of a step from all over it: the first steps would fetch and check nearly every block. Set "
                "shuffle = block, or admit the store eagerly (`dataserver store index` does that ahead of time)",
                store=source.store,
            )


def modalities(stores: Sequence[Store]) -> frozenset[str]:
    """`text` and `image`, as far as stores have rows of them."""
    image_rows = [0 if store.images is None else store.images.rows for store in stores]
    text = any(store.rows > rows for store, rows in zip(stores, image_rows, strict=True))
    return frozenset((["text"] if text else []) + (["image"] if any(image_rows) else []))


def _is_weighted(source: Source, store: Store) -> bool:
    if source.loss_weight is None and store.has_weights:
        raise InvalidSpecError(
            f"store {source.store!r} has a column loss_weight, and the source does not say what to do with it: set "
            "loss_weight = true to count targets by it, or false to count all alike",
            store=source.store,
        )
    if source.loss_weight and not store.has_weights:
        raise InvalidSpecError(
            f"loss_weight = true for store {source.store!r}, which has no column loss_weight", store=source.store
        )
    return bool(source.loss_weight)


def _image_format(order: OrderSpec, stores: Sequence[Store]) -> ImageFormat | None:
    """How images are served: values as wide as the widest store's; patches have to be of one size."""
    having = [(source.store, store.images) for source, store in zip(order.sources, stores, strict=True) if store.images]
    if not having:
        return None
    name, first = having[0]
    for other, images in having:
        if images.patch_values != first.patch_values:
            raise InvalidSpecError(
                f"the images of store {name!r} have {first.patch_values} values a patch, those of {other!r} "
                f"{images.patch_values}: they were made by different processors and cannot share a run",
                store=other,
            )
    return ImageFormat(pixel_bytes=max(images.pixel_bytes for _, images in having), patch_values=first.patch_values)
