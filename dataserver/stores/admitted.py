"""What the manifest of a store says of it."""

from dataserver.stores.manifest import LengthBucket, Manifest, Shard
from dataserver.stores.schema import Admission, Column, LossMask
from dataserver.wire.store_info import ImageFigures


class Admitted:
    """A store by its manifest."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    @property
    def fingerprint(self) -> str:
        """Hash of shard order, sizes, row counts and contents, and of where the mask comes from."""
        return self._manifest.fingerprint

    @property
    def format(self) -> str:
        """`arrow`, `parquet` or `json`."""
        return self._manifest.format

    @property
    def loss_mask(self) -> LossMask:
        """Where the loss mask comes from."""
        return self._manifest.loss_mask

    @property
    def admission(self) -> Admission:
        """When its rows are checked. Lazily: `tokens`, `longest_row`, `max_token` and the histogram are not known."""
        return self._manifest.admission

    @property
    def rows(self) -> int:
        """Rows, before any drop."""
        return self._manifest.rows

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return self._manifest.tokens

    @property
    def longest_row(self) -> int:
        """Tokens of the longest row."""
        return self._manifest.longest_row

    @property
    def max_token(self) -> int:
        """The highest token id; -1 if there is no token."""
        return self._manifest.max_token

    @property
    def max_token_row(self) -> int:
        """The first row that has `max_token`."""
        return self._manifest.max_token_row

    @property
    def token_bytes(self) -> int:
        """Bytes of one token on the wire, 2 or 4."""
        return self._manifest.token_bytes

    @property
    def has_weights(self) -> bool:
        """Whether rows have a weight for each token."""
        return self._manifest.has_weights

    @property
    def images(self) -> ImageFigures | None:
        """The images of all rows; None where no row has any."""
        return self._manifest.images

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns with the types that they have in the first shard."""
        return self._manifest.shards[0].columns

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Files in the order in which their rows count."""
        return self._manifest.shards

    def length_histogram(self) -> tuple[LengthBucket, ...]:
        """How many rows are about as long, in powers of two."""
        return self._manifest.length_histogram
