"""Index space: from the lengths of a step's samples to micro-batches in rounds."""
