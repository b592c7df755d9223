"""The demo's server and trainer, as their configuration files say it."""

import json
from pathlib import Path

from folder import Folder

RUN = "manual-backwards"
STORE = "manual"
MAX_LENGTH = 256

# A step of some 55 samples, so that the epoch takes about 40 steps; 3 micro-batches on each of two ranks.
STEP_TOKENS = 6144
MICRO_BATCH_TOKENS = 1024
CHECKPOINT_EVERY = 5

SERVER = """\
listen = {endpoint}
metrics_listen = ""
ledger = {ledger}
index_dir = {indexes}
stores.{store_name}.path = {store}
"""

TRAINER = """\
[run]
name = "{run}"

[run.order]
sources = [{{ store = "{store_name}" }}]
max_length = {max_length}
seed = 7

[run.batch]
step_tokens = {step_tokens}
micro_batch_tokens = {micro_batch_tokens}
max_epochs = 1

[model.config]
model_type = "qwen3"
vocab_size = {vocabulary}
hidden_size = 64
intermediate_size = 192
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 16
max_position_embeddings = {max_length}
tie_word_embeddings = true

[optim]
lr = 5e-3
warmup_steps = 4

[parallel]
device = "cpu"

[checkpoint]
dir = {checkpoints}
every_steps = {checkpoint_every}
keep_last = 2

[metrics]
jsonl = {metrics}
"""


def write_settings(folder: Folder, endpoint: str, vocabulary: int) -> tuple[Path, Path]:
    """Write both files; return their paths, the server's first."""
    server, trainer = folder.root / "server.toml", folder.root / "train.toml"
    server.write_text(
        SERVER.format(
            endpoint=quoted(endpoint),
            ledger=quoted(f"sqlite:///{folder.root / 'ledger.db'}"),
            indexes=quoted(folder.root / "indexes"),
            store_name=STORE,
            store=quoted(folder.store),
        )
    )
    trainer.write_text(
        TRAINER.format(
            run=RUN,
            store_name=STORE,
            max_length=MAX_LENGTH,
            step_tokens=STEP_TOKENS,
            micro_batch_tokens=MICRO_BATCH_TOKENS,
            vocabulary=vocabulary,
            checkpoints=quoted(folder.root / "checkpoints"),
            checkpoint_every=CHECKPOINT_EVERY,
            metrics=quoted(folder.metrics),
        )
    )
    return server, trainer


def quoted(value: object) -> str:
    """A TOML string; JSON's are a subset of TOML's."""
    return json.dumps(str(value))
