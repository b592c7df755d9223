"""The first message of a stream: what goes with which purpose."""

import pytest

from dataserver.errors import InvalidRequestError, InvalidSpecError
from dataserver.eval_spec import EvalSpec
from dataserver.streaming.opening import EvalOpening, Opening, parse_opening
from dataserver.v1 import batch_service_pb2 as pb
from dataserver.v1 import run_spec_pb2
from dataserver.wire.evals import eval_spec_to_proto

TRAIN = {
    "purpose": pb.PURPOSE_TRAIN,
    "run": "chat",
    "attempt": 1,
    "attempt_id": "a",
    "next_step": 1,
    "credits": 4,
}
SPEC = EvalSpec(store="dev", max_length=8, micro_batch_tokens=16, max_samples=3, vocab_size=100, pad_to=8, alignment=4)
EVAL = {"purpose": pb.PURPOSE_EVAL, "eval": eval_spec_to_proto(SPEC), "dp_world_size": 2, "dp_rank": 1, "credits": 4}


def opening(**fields) -> Opening | EvalOpening:
    return parse_opening(pb.StreamMicroBatchesRequest(open=pb.Open(**fields)))


def test_each_purpose_has_an_opening_of_its_own() -> None:
    assert isinstance(opening(**TRAIN), Opening)
    assert opening(**EVAL) == EvalOpening(spec=SPEC, dp_rank=1, dp_world_size=2, begin=None, credits=4)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (TRAIN | {"purpose": pb.PURPOSE_UNSPECIFIED}, "PURPOSE_TRAIN or PURPOSE_EVAL"),
        (TRAIN | {"dp_world_size": 2}, "open.dp_world_size does not go with PURPOSE_TRAIN"),
        (TRAIN | {"eval": EVAL["eval"]}, "open.eval does not go with PURPOSE_TRAIN"),
        (EVAL | {"run": "chat"}, "open.run does not go with PURPOSE_EVAL"),
        (EVAL | {"next_step": 3}, "open.next_step does not go with PURPOSE_EVAL"),
        (EVAL | {"eval": None}, "open.eval is missing"),
        (EVAL | {"dp_world_size": 0}, "open.dp_world_size = 0"),
        (EVAL | {"dp_rank": 2}, "give 0 to 1"),
        (EVAL | {"credits": 0}, "open.credits = 0"),
    ],
)
def test_a_field_of_the_other_purpose_or_out_of_range_is_refused(fields, told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        opening(**fields)


def test_an_eval_spec_that_cannot_be_carried_out_is_refused_with_its_field() -> None:
    with pytest.raises(InvalidSpecError, match="long_rows: 0"):
        opening(**EVAL | {"eval": run_spec_pb2.EvalSpec(store="dev", max_length=8, micro_batch_tokens=16)})
    narrow = run_spec_pb2.EvalSpec()
    narrow.CopyFrom(EVAL["eval"])
    narrow.micro_batch_tokens = 4
    with pytest.raises(InvalidSpecError, match="micro_batch_tokens = 4"):
        opening(**EVAL | {"eval": narrow})
