"""Rows of a store on a data server as prompts: asked as tokens, compared as tokens."""

from collections.abc import Iterator

import pytest
from evallab.engines import ScriptedEngine

from dataserver.client import DataClient
from dataserver.errors import InvalidConfigError, StoreNotFoundError
from dataserver.testing import running_server, write_store
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.loading import load_questions
from orchestrator.evals.prompts import load_prompts


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataClient]:
    store = tmp_path_factory.mktemp("stores") / "palindromes"
    # "abc" is asked and "cba" is right; the second row has no target, the third is all target.
    rows = [
        ([97, 98, 99, 99, 98, 97, 10], [0, 0, 0, 1, 1, 1, 0]),
        ([97, 98], [0, 0]),
        ([97, 98], [1, 1]),
        ([120, 121, 122, 120], [0, 0, 0, 1]),
    ]
    write_store(store, rows=rows)
    with running_server({"palindromes": store}) as server, DataClient(server.endpoint) as client:
        yield client


def config(store: str, **fields: object) -> EvalConfig:
    plain = {"name": "e", "interval": 1, "prompts": {"store": store}, "sampling": {"max_tokens": 16}}
    return EvalConfig.model_validate(plain | fields)


async def test_a_row_is_asked_up_to_its_first_target_and_its_targets_are_right(client):
    questions = load_questions(config("palindromes"), client)
    assert questions.count == 2
    answers = [await questions.answer(prompt, 0, ScriptedEngine("a"), lambda _label: None) for prompt in range(2)]
    assert [(answer.text, answer.reward) for answer in answers] == [("cba", 1.0), ("zyx", 0.0)]


def test_what_a_store_cannot_give_is_refused(client):
    with pytest.raises(StoreNotFoundError, match="nosuch"):
        load_prompts(config("nosuch"), client)
    with pytest.raises(InvalidConfigError, match="row 0: a store's references are tokens"):
        load_questions(config("palindromes", scorer={"kind": "numeric"}), client)
    with pytest.raises(InvalidConfigError, match="need a data server"):
        load_prompts(config("palindromes"))
