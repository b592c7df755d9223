import pytest
from pydantic import ValidationError

from orchestrator.evals.config import EvalConfig, check_evals

PLAIN = {
    "name": "reverse",
    "interval": 5,
    "prompts": {"file": "reverse.jsonl"},
    "sampling": {"max_tokens": 64},
}


def test_a_plain_eval_is_live_exact_and_due_at_both_ends():
    config = EvalConfig.model_validate(PLAIN)
    assert (config.pin, config.scorer.kind, config.eval_at_start, config.eval_at_end) == (False, "exact", True, True)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"interval": 0}, "greater than or equal to 1"),
        ({"name": "a/b"}, "use letters, digits"),
        ({"prompts": None}, "exactly one of prompts and environment"),
        ({"environment": {"id": "wordle"}}, "exactly one of prompts and environment"),
        ({"prompts": None, "environment": {"id": "wordle"}, "scorer": {"kind": "exact"}}, "leave the scorer out"),
        ({"prompts": {}}, "exactly one of prompts.file and prompts.store"),
        ({"prompts": {"file": "a", "store": "b"}}, "exactly one of prompts.file and prompts.store"),
        ({"samples": 2, "sampling": {"max_tokens": 1, "temperature": 0}}, "set samples = 1, or a temperature above 0"),
        ({"sampling": {"max_tokens": 1, "stop": ["", "x"]}}, "leave it out"),
        ({"sampling": {"max_tokens": 1, "temperature": float("nan")}}, "finite"),
        ({"scorer": {"kind": "regex", "pattern": "("}}, "no pattern as of Python's re"),
        ({"scorer": {"kind": "regex", "pattern": "(a)(b)"}}, r"write the others as \(\?:"),
        ({"scorer": {"kind": "python", "entry_point": "rewards.math"}}, "MODULE:FUNCTION"),
        ({"scorer": {"kind": "vibes"}}, "'exact', 'numeric', 'regex', 'python'"),
        ({"intervall": 3}, "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_with_the_way_out(fields, told):
    with pytest.raises(ValidationError, match=told):
        EvalConfig.model_validate(PLAIN | fields)


def test_names_that_collide_are_refused_by_name():
    evals = [EvalConfig.model_validate(PLAIN | {"name": name}) for name in ("a", "b", "a")]
    with pytest.raises(ValueError, match="same name: a;"):
        check_evals(evals)
    check_evals(evals[:2])
