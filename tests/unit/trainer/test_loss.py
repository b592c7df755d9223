"""The loss in chunks is the loss at once."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from trainer.loss import CHUNK_TARGETS, loss_share, target_loss_sum


def test_chunks_change_neither_loss_nor_gradient() -> None:
    torch.manual_seed(0)
    rows = 2 * CHUNK_TARGETS + 3
    logits = torch.randn(rows, 7, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 7, (rows,))
    target_loss_sum(logits, labels).backward()
    chunked, logits.grad = logits.grad, None
    whole = cross_entropy(logits, labels, reduction="sum")
    whole.backward()
    torch.testing.assert_close(target_loss_sum(logits, labels), whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(chunked, logits.grad, rtol=1e-12, atol=0)


def test_chunks_change_a_weighted_loss_and_its_gradient_as_little() -> None:
    torch.manual_seed(1)
    rows = 2 * CHUNK_TARGETS + 3
    logits = torch.randn(rows, 7, dtype=torch.float64, requires_grad=True)
    labels, weights = torch.randint(0, 7, (rows,)), torch.rand(rows, dtype=torch.float64)
    target_loss_sum(logits, labels, weights).backward()
    chunked, logits.grad = logits.grad, None
    whole = (cross_entropy(logits, labels, reduction="none") * weights).sum()
    whole.backward()
    torch.testing.assert_close(target_loss_sum(logits, labels, weights), whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(chunked, logits.grad, rtol=1e-12, atol=1e-15)


def test_the_weighted_mean_is_the_one_of_class_weights_in_torch() -> None:
    logits, labels = torch.randn(20, 4), torch.randint(0, 4, (20,))
    of_class = torch.tensor([0.5, 1.0, 0.0, 2.0])
    weights = of_class[labels]
    mean = loss_share(target_loss_sum(logits, labels, weights), float(weights.sum()))
    assert float(mean) == pytest.approx(float(cross_entropy(logits, labels, weight=of_class)))


def test_logits_in_bf16_are_summed_in_float32() -> None:
    logits = torch.randn(64, 11).bfloat16()
    labels = torch.randint(0, 11, (64,))
    loss = target_loss_sum(logits, labels)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, cross_entropy(logits.float(), labels, reduction="sum"))


def test_no_target_gives_loss_and_gradient_of_exactly_zero() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    share = loss_share(target_loss_sum(logits, torch.full((3,), -100)), 0)
    share.backward()
    assert float(share.detach()) == 0.0
    assert not logits.grad.any()


def test_shares_of_one_denominator_add_up_to_the_mean() -> None:
    logits, labels = torch.randn(10, 4), torch.randint(0, 4, (10,))
    parts = [loss_share(target_loss_sum(logits[cut], labels[cut]), 10) for cut in (slice(0, 3), slice(3, 10))]
    assert float(sum(parts)) == pytest.approx(float(cross_entropy(logits, labels)))
