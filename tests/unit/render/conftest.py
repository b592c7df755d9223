"""Tokenizers built on the spot."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from renderlab.tokenizers import CHATML, FORGETFUL, MARKED, OPEN_ENDED, build_tokenizer


@pytest.fixture(scope="session")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tokenizer(tmp_path_factory.mktemp("tokenizer") / "chatml", CHATML)


@pytest.fixture(scope="session")
def open_ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tokenizer(tmp_path_factory.mktemp("tokenizer") / "open_ended", OPEN_ENDED, eos="<|user|>")


@pytest.fixture(scope="session")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tokenizer(tmp_path_factory.mktemp("tokenizer") / "forgetful", FORGETFUL)


@pytest.fixture(scope="session")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tokenizer(tmp_path_factory.mktemp("tokenizer") / "marked", MARKED)
