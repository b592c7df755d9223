from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.evals.figures import eval_figures, pass_at_k, powers_of_two
from orchestrator.results import Answer


def by_drawing_every_subset(samples: int, right: int, k: int) -> float:
    """pass@k by its meaning: the share of subsets of k answers in which one is right."""
    answers = [True] * right + [False] * (samples - right)
    subsets = list(combinations(answers, k))
    return float(Fraction(sum(map(any, subsets)), len(subsets)))


@pytest.mark.parametrize("samples", range(1, 9))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer(samples):
    for right in range(samples + 1):
        for k in range(1, samples + 1):
            assert pass_at_k(samples, right, k) == by_drawing_every_subset(samples, right, k)


@given(st.integers(1, 4096), st.data())
def test_pass_at_k_is_the_product_of_misses_for_any_size(samples, data):
    right, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    misses = Fraction(1)
    for drawn in range(k):
        misses *= Fraction(max(0, samples - right - drawn), samples - drawn)
    assert pass_at_k(samples, right, k) == float(1 - misses)


@pytest.mark.parametrize(("samples", "right", "k"), [(4, 1, 5), (4, 5, 1), (4, 1, 0), (4, -1, 1)])
def test_pass_at_k_of_nonsense_is_refused(samples, right, k):
    with pytest.raises(ValueError, match=f"pass@{k} of {right}"):
        pass_at_k(samples, right, k)


def answer(prompt: int, sample: int, reward: float, *, tokens: int = 3, reason: str = "stop") -> Answer:
    return Answer(
        prompt=prompt,
        sample=sample,
        reward=reward,
        text="",
        tokens=tokens,
        finish_reason=reason,
        version_tokens=(),
        engine="a",
    )


def test_figures_of_binary_rewards():
    rewards = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
    answers = [answer(p, s, reward) for p, row in enumerate(rewards) for s, reward in enumerate(row)]
    answers[0] = answer(0, 0, 1, tokens=9, reason="length")
    figures = eval_figures(answers, samples=4, binary=True, seconds=2.5)
    assert figures == {
        "mean": 3 / 12,
        "pass@1": pytest.approx((1 / 4 + 1 / 2 + 0) / 3),
        "pass@2": pytest.approx((1 / 2 + 5 / 6 + 0) / 3),
        "pass@4": pytest.approx(2 / 3),
        "completion_tokens": 42.0,
        "mean_tokens": 3.5,
        "truncated": 1 / 12,
        "seconds": 2.5,
    }


def test_other_rewards_have_a_mean_and_no_pass():
    figures = eval_figures([answer(0, 0, 0.25), answer(0, 1, 0.5)], samples=2, binary=False, seconds=1)
    assert figures["mean"] == 0.375
    assert not [name for name in figures if name.startswith("pass")]


def test_a_prompt_that_misses_answers_counts_in_no_pass():
    answers = [answer(0, 0, 1), answer(0, 1, 0), answer(1, 0, 1)]
    assert eval_figures(answers, samples=2, binary=True, seconds=1)["pass@1"] == 0.5
    assert "pass@1" not in eval_figures(answers[2:], samples=2, binary=True, seconds=1)
    assert eval_figures([], samples=2, binary=True, seconds=1) == {"seconds": 1}


def test_k_are_powers_of_two():
    assert [list(powers_of_two(n)) for n in (1, 3, 8)] == [[1], [1, 2], [1, 2, 4, 8]]
