"""The four processes of the demo of evals, as their configuration files say it, and the job that holds them."""

import os
import sys
from pathlib import Path

from settings import quoted
from words import MAX_LENGTH

RUN = "words-backwards"
STORE = "words"
STEPS = 200
EVERY = 20
"""An eval is due every so many steps."""

RANKS = 2

SERVER = """\
listen = "{data_endpoint}"
metrics_listen = ""
ledger = "sqlite:///ledger.db"
index_dir = "indexes"
stores.{store}.path = "store"
"""

TRAINER = """\
[run]
name = "{run}"

[run.order]
sources = [{{ store = "{store}" }}]
max_length = {max_length}
seed = 7

[run.batch]
step_tokens = 4096
micro_batch_tokens = 2048
max_steps = {steps}

[model]
path = "model"

[optim]
lr = 5e-3
warmup_steps = 10
schedule = "cosine"

[parallel]
device = "cpu"

[checkpoint]
dir = "checkpoints"

[metrics]
jsonl = "metrics.jsonl"

[weights]
transport = "gloo"
"""

ORCHESTRATOR = """\
[run]
name = "{run}"

[weights]
transport = "gloo"

[serve]
listen = "127.0.0.1:0"
metrics_listen = ""

[results]
database = "sqlite:///results.db"

[[engines]]
name = "engine-0"
url = "{engine_url}"
restart = [{python_quoted}, "-m", "deploy.launcher", "restart", "engine-0"]

[[evals]]
name = "overlap"
interval = {every}
prompts = {{ file = "held-out.jsonl" }}
sampling = {{ max_tokens = 12, temperature = 0.0 }}
scorer = {{ kind = "python", entry_point = "words:overlap" }}

[[evals]]
name = "exact"
interval = {every}
prompts = {{ file = "held-out.jsonl" }}
sampling = {{ max_tokens = 12, temperature = 0.0 }}
"""

JOB = """\
stop_s = 20

[server]
command = "{bin}/dataserver serve server.toml"

# The engine takes half a minute to start. The trainer would be far ahead by then, and the curve would begin there.
[trainer]
command = '''
{python} {here}/when_healthy.py {engine_url}/health {python} -m torch.distributed.run --standalone
    --nproc-per-node {ranks} -m trainer train.toml --data-endpoint {data_endpoint}
'''
environment = {{ OMP_NUM_THREADS = "1" }}

[engines.engine-0]
command = '''
{vllm_python} -m vllm.entrypoints.openai.api_server --model model --load-format dummy
    --host 127.0.0.1 --port {engine_port} --dtype float32 --enforce-eager --max-model-len 64 --max-num-seqs 64
    --enable-scale-out --weight-transfer-config '{{"backend": "dataserver"}}'
    --worker-extension-cls orchestrator.vllm_plugin.worker.WorkerReports
'''

[engines.engine-0.environment]
VLLM_TARGET_DEVICE = "cpu"
VLLM_SERVER_DEV_MODE = "1"
VLLM_CPU_KVCACHE_SPACE = "1"
VLLM_CPU_OMP_THREADS_BIND = "nobind"
VLLM_NO_USAGE_STATS = "1"
DO_NOT_TRACK = "1"
HF_HUB_OFFLINE = "1"
OMP_NUM_THREADS = "1"

[orchestrator]
command = "{python} -m orchestrator orchestrator.toml --data-endpoint {data_endpoint}"
environment = {{ PYTHONPATH = {import_path} }}
"""


def write_job(folder: Path, *, data_port: int, engine_port: int, vllm_python: Path) -> Path:
    """Write all five files; return the job's. Its commands run in `folder`, so paths in the files are short."""
    here = Path(__file__).resolve().parent
    values = {
        "run": RUN,
        "store": STORE,
        "steps": STEPS,
        "every": EVERY,
        "ranks": RANKS,
        "max_length": MAX_LENGTH,
        "python": sys.executable,
        "python_quoted": quoted(sys.executable),
        "bin": Path(sys.executable).parent,
        "vllm_python": vllm_python,
        "here": here,
        "import_path": quoted(os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])),
        "data_endpoint": f"127.0.0.1:{data_port}",
        "engine_port": engine_port,
        "engine_url": f"http://127.0.0.1:{engine_port}",
    }
    files = {"server.toml": SERVER, "train.toml": TRAINER, "orchestrator.toml": ORCHESTRATOR, "job.toml": JOB}
    for name, text in files.items():
        (folder / name).write_text(text.format(**values))
    return folder / "job.toml"
