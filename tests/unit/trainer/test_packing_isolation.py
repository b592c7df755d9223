"""Samples that share a micro-batch do not see each other, forward or backward."""

import numpy as np
import pytest
import torch

from dataserver.wire.micro_batch import MicroBatch
from trainer.attention import packed_attention
from trainer.config import Attention, ModelConfig
from trainer.errors import ModelError
from trainer.model import build_model, full_weights, model_config, pack, predictor_logits

FIELDS = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
LENGTHS = [7, 5, 9]
CPU = torch.device("cpu")


def batch(tokens: np.ndarray, lengths: list[int]) -> MicroBatch:
    return MicroBatch(
        step=1,
        round=0,
        sync_weights=False,
        alignment=1,
        lengths=np.array(lengths),
        target_count=len(tokens) - len(lengths),
        tokens=tokens,
        loss_mask=np.ones(len(tokens), dtype=bool),
    )


def model_of(model_type: str, attention: Attention) -> torch.nn.Module:
    config = ModelConfig(config={"model_type": model_type, **FIELDS}, attention=attention)
    model = build_model(config, model_config(config))
    model.load_state_dict(full_weights(config, model_config(config)))
    return model


def logits_and_gradient(
    model: torch.nn.Module, tokens: np.ndarray, lengths: list[int], part: slice
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the predictors in `part`, and their gradient with respect to every token's embedding."""
    seen: list[torch.Tensor] = []

    def keep(_module: torch.nn.Module, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        seen.append(output.detach().requires_grad_())
        return seen[-1]

    hook = model.get_input_embeddings().register_forward_hook(keep)
    logits = predictor_logits(model, pack(batch(tokens, lengths), CPU))[part]
    hook.remove()
    (gradient,) = torch.autograd.grad(logits.square().sum(), seen)
    return logits.detach(), gradient[0]


@pytest.mark.parametrize("attention", [Attention.PACKED, Attention.SDPA])
@pytest.mark.parametrize("model_type", ["qwen3", "llama"])
class TestIsolation:
    # Predictors of the sample in the middle: each sample's last position predicts nothing.
    MIDDLE = slice(LENGTHS[0] - 1, LENGTHS[0] - 1 + LENGTHS[1] - 1)

    def test_changing_the_neighbours_changes_no_bit(self, model_type: str, attention: Attention) -> None:
        model = model_of(model_type, attention)
        random = np.random.default_rng(0)
        tokens = random.integers(0, 64, sum(LENGTHS)).astype(np.uint16)
        others = random.integers(0, 64, sum(LENGTHS)).astype(np.uint16)
        others[7:12] = tokens[7:12]
        before, before_gradient = logits_and_gradient(model, tokens, LENGTHS, self.MIDDLE)
        after, after_gradient = logits_and_gradient(model, others, LENGTHS, self.MIDDLE)
        assert torch.equal(before, after)
        assert torch.equal(before_gradient[7:12], after_gradient[7:12])

    def test_no_gradient_reaches_a_neighbour(self, model_type: str, attention: Attention) -> None:
        tokens = np.random.default_rng(1).integers(0, 64, sum(LENGTHS)).astype(np.uint16)
        _, gradient = logits_and_gradient(model_of(model_type, attention), tokens, LENGTHS, self.MIDDLE)
        assert not gradient[:7].any()
        assert not gradient[12:].any()
        assert gradient[7:11].abs().sum(dim=1).gt(0).all()

    def test_packed_equals_alone(self, model_type: str, attention: Attention) -> None:
        model = model_of(model_type, attention)
        tokens = np.random.default_rng(2).integers(0, 64, sum(LENGTHS)).astype(np.uint16)
        packed, packed_gradient = logits_and_gradient(model, tokens, LENGTHS, self.MIDDLE)
        alone, alone_gradient = logits_and_gradient(model, tokens[7:12], [5], slice(None))
        torch.testing.assert_close(packed, alone, rtol=1e-5, atol=1e-6)
        # Sums of other lengths are rounded otherwise, and how depends on the processor: it is measured by the largest.
        scale = alone_gradient.abs().max().item()
        torch.testing.assert_close(packed_gradient[7:12], alone_gradient, rtol=0, atol=1e-5 * scale)


def test_the_check_would_see_attention_across_samples() -> None:
    model = model_of("qwen3", Attention.PACKED)
    tokens = np.random.default_rng(1).integers(0, 64, 12).astype(np.uint16)
    _, gradient = logits_and_gradient(model, tokens, [12], slice(6, 10))
    assert gradient[:6].abs().sum(dim=1).gt(0).all()


def test_a_model_with_dropout_in_its_attention_is_refused() -> None:
    config = ModelConfig(config={"model_type": "llama", **FIELDS, "attention_dropout": 0.5})
    with pytest.raises(ModelError, match=r"attention_dropout = 0\.5"):
        model_config(config)


def test_sliding_windows_are_refused_where_the_kernel_lacks_them() -> None:
    sliding = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
    config = ModelConfig(config={"model_type": "qwen3", **FIELDS, **sliding})
    with pytest.raises(ModelError, match="sliding-window"):
        model_config(config)
    model_config(config.model_copy(update={"attention": Attention.SDPA}))


def test_an_unknown_model_type_is_named() -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        model_config(ModelConfig(config={"model_type": "no-such-model"}))


def test_a_micro_batch_without_samples_becomes_one_token_that_predicts_nothing() -> None:
    packed = pack(batch(np.zeros(0, dtype=np.uint16), []), CPU)
    assert packed.input_ids.shape == (1, 1)
    assert packed.labels.tolist() == [-100]
    assert packed.bounds.tolist() == [0, 1]


def test_only_positions_that_predict_a_target_get_logits() -> None:
    held = batch(np.arange(9, dtype=np.uint32), [4, 5])
    held.loss_mask[:] = [True, False, True, False, True, True, False, False, True]
    packed = pack(held, CPU)
    assert packed.predictors.tolist() == [1, 4, 7]
    assert packed.labels.tolist() == [2, 5, 8]


@pytest.mark.gpu
def test_the_variable_length_kernel_agrees_with_sample_by_sample() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, heads, 21, 16, device="cuda") for heads in (4, 2, 2))
    where = {"scaling": 0.25, "cu_seq_lens_q": torch.tensor([0, 7, 12, 21], dtype=torch.int32, device="cuda")}
    exact, _ = packed_attention(torch.nn.Identity(), query, key, value, None, max_length_q=9, **where)
    halves = (tensor.bfloat16() for tensor in (query, key, value))
    fast, _ = packed_attention(torch.nn.Identity(), *halves, None, max_length_q=9, **where)
    torch.testing.assert_close(fast.float(), exact, rtol=2e-2, atol=2e-2)
