"""What is read of a view, end to end."""

import numpy as np

from dataserver.stores.destination import Destination


def read_view(view, rows, token_bytes=4, **wanted):
    """Rows of a view, end to end in arrays made for them."""
    lengths = view.lengths(rows)
    into = Destination.end_to_end(lengths, token_bytes=token_bytes, mask=True, **wanted)
    view.read(rows, lengths, into)
    return into


def tokens_of(view, rows, token_bytes=4):
    """Their tokens, uint16 or uint32."""
    return read_view(view, np.asarray(rows), token_bytes).tokens
