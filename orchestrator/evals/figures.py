"""What the scores of an eval come to.

mean                of all answers' rewards
pass@K              K = 1, 2, 4, … up to the answers per prompt, of binary rewards: how probable it is that of K
answers to a prompt at least one is right; mean over prompts
completion_tokens   of all answers
mean_tokens         of an answer
truncated           share of answers that reached `max_tokens`
seconds             from the first question to the last answer
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import comb, fsum

from orchestrator.results.records import Answer


def pass_at_k(samples: int, right: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k): how probable it is that k of n answers, drawn without repeat, hold one of c right ones.

    Unbiased for the probability over all answers that the policy could give (Chen et al. 2021, arXiv:2107.03374).
    Whole numbers to the end, so it is right to the last bit.
    """
    if not 0 < k <= samples or not 0 <= right <= samples:
        raise ValueError(f"pass@{k} of {right} right answers among {samples}")
    return (comb(samples, k) - comb(samples - right, k)) / comb(samples, k)


def powers_of_two(limit: int) -> Iterator[int]:
    """1, 2, 4, … up to `limit`."""
    k = 1
    while k <= limit:
        yield k
        k *= 2


def eval_figures(answers: Sequence[Answer], *, samples: int, binary: bool, seconds: float) -> dict[str, float]:
    """The figures of `answers`, `samples` to each prompt; prompts that miss some are left out of pass@K."""
    if not answers:
        return {"seconds": seconds}
    tokens = sum(answer.tokens for answer in answers)
    figures = {
        "mean": fsum(answer.reward for answer in answers) / len(answers),
        "completion_tokens": float(tokens),
        "mean_tokens": tokens / len(answers),
        "truncated": sum(answer.finish_reason == "length" for answer in answers) / len(answers),
        "seconds": seconds,
    }
    if binary:
        rewards = defaultdict(list)
        for answer in answers:
            rewards[answer.prompt].append(answer.reward)
        right = [sum(reward == 1 for reward in each) for each in rewards.values() if len(each) == samples]
        for k in powers_of_two(samples) if right else ():
            figures[f"pass@{k}"] = fsum(pass_at_k(samples, c, k) for c in right) / len(right)
    return figures
