"""The NCCL way, as far as vLLM's own classes run without a GPU."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from enginelab.vllm_server import ENVIRONMENT, REPOSITORY, vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_transfer_is_put_into_words_of_vllm_s_own_nccl_engine() -> None:
    run = subprocess.run(
        [vllm_python(), Path(__file__).parent / "enginelab" / "nccl_without_gpu.py"],
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=500,
    )
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["backend"] == "DataServerWeightTransfer"
    assert (
        found["init"].items()
        >= {
            "master_address": "127.0.0.1",
            "master_port": 29999,
            "rank_offset": 2,
            "world_size": 3,
            "packed": False,
        }.items()
    )
    assert found["update"] == {"names": ["w", "b"], "dtype_names": ["bfloat16", "float32"], "shapes": [[2, 3], [3]]}
    assert "the trainer at 127.0.0.1:29999" in found["fault"]
    assert found["seconds"] < 200, "it waited for its deadline"
