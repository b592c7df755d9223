"""What can go wrong in a trainer itself; what the data server reports is `dataserver.errors`.

TrainerError
├── RanksDisagreeError   ranks were given different steps
├── NonFiniteError       a step's gradient is not a number
├── CheckpointError      a checkpoint cannot be written, read or chosen
└── ModelError           a model cannot be trained as configured
"""


class TrainerError(Exception):
    """Base of a trainer's own faults; its message says what is wrong, with which value, and what to do."""


class RanksDisagreeError(TrainerError):
    """Ranks were given different steps, plans or sync flags."""


class NonFiniteError(TrainerError):
    """A step's gradient is infinite or not a number; the weights were left as they were."""


class CheckpointError(TrainerError):
    """A checkpoint cannot be written, read or chosen."""


class ModelError(TrainerError):
    """A model cannot be trained as configured."""
