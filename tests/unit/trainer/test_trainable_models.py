"""Models that would be trained wrongly in silence are refused, and so are weights that are not all there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from trainer.attention import packed_attention
from trainer.config import Attention, ModelConfig
from trainer.errors import ModelError
from trainer.model import empty_model, full_weights, model_config

FIELDS: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
}


def configured(model_type: str, attention: Attention = Attention.PACKED, **fields: Any) -> ModelConfig:
    return ModelConfig(config={"model_type": model_type, **FIELDS, **fields}, attention=attention)


@pytest.mark.parametrize("model_type", ["mistral", "mixtral", "phi3", "starcoder2"])
def test_one_window_for_all_layers_is_refused_where_the_kernel_lacks_it(model_type: str) -> None:
    with pytest.raises(ModelError, match=r"sliding-window layers, which model\.attention = 'packed' lacks"):
        model_config(configured(model_type, sliding_window=4))
    model_config(configured(model_type, sliding_window=None))
    model_config(configured(model_type, Attention.SDPA, sliding_window=4))


@pytest.mark.parametrize("attention", [Attention.PACKED, Attention.SDPA])
def test_layers_that_carry_one_sample_into_the_next_are_refused(attention: Attention) -> None:
    with pytest.raises(ModelError, match="layers of the kind conv, which do not keep the samples"):
        model_config(configured("lfm2", attention, layer_types=["conv", "full_attention"]))


@pytest.mark.parametrize("asked", ["softcap", "s_aux", "sliding_window"])
def test_an_attention_that_the_kernel_lacks_is_refused(asked: str) -> None:
    one = torch.ones(1, 1, 2, 4)
    bounds = {"cu_seq_lens_q": torch.tensor([0, 2], dtype=torch.int32), "max_length_q": 2}
    with pytest.raises(ModelError, match=asked):
        packed_attention(torch.nn.Identity(), one, one, one, None, scaling=1.0, **bounds, **{asked: 30.0})
    with pytest.raises(ModelError, match="where samples begin"):
        packed_attention(torch.nn.Identity(), one, one, one, None, scaling=1.0)
    out, _ = packed_attention(torch.nn.Identity(), one, one, one, None, scaling=1.0, **bounds, **{asked: None})
    assert out.shape == (1, 2, 1, 4)


@pytest.mark.parametrize(
    ("model_type", "told"),
    [("gemma", "embed_scale, which is in no file"), ("gpt2", "no layers and no rotary_emb in its decoder")],
)
def test_a_model_that_sharding_would_break_is_refused(model_type: str, told: str) -> None:
    config = configured(model_type)
    with pytest.raises(ModelError, match=told):
        empty_model(config, model_config(config))


@pytest.mark.parametrize("fields", [{"hidden_size": -4}, {"num_attention_heads": 0}, {"vocab_size": "many"}])
def test_figures_that_make_no_model_are_a_fault_of_the_model(fields: dict[str, Any]) -> None:
    config = configured("llama", **fields)
    with pytest.raises(ModelError):
        empty_model(config, model_config(config))


def test_a_misspelt_field_is_refused_with_the_right_one() -> None:
    with pytest.raises(ModelError, match="qwen3 has no field 'hiden_size'; is it 'hidden_size'"):
        model_config(configured("qwen3", hiden_size=32))
    model_config(configured("qwen3", rope_theta=1e6, our_own_note="kept"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "whole"
    AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **FIELDS)).save_pretrained(path)
    return path


def copied(whole: Path, into: Path, *, without: str = "nothing") -> ModelConfig:
    (into / "config.json").write_bytes((whole / "config.json").read_bytes())
    held = {name: weight for name, weight in load_file(whole / "model.safetensors").items() if without not in name}
    save_file(held, into / "model.safetensors", metadata={"format": "pt"})
    return ModelConfig(path=str(into))


def test_weights_of_a_directory_are_read_as_they_are(whole: Path, tmp_path: Path) -> None:
    config = copied(whole, tmp_path)
    read = full_weights(config, model_config(config))
    written = load_file(whole / "model.safetensors")
    assert written.keys() == read.keys()
    assert all(torch.equal(read[name], weight) for name, weight in written.items())


@pytest.mark.parametrize("without", ["lm_head", "layers.1."])
def test_weights_that_a_directory_lacks_are_not_drawn_at_random(whole: Path, tmp_path: Path, without: str) -> None:
    config = copied(whole, tmp_path, without=without)
    with pytest.raises(ModelError, match=rf"{tmp_path} lacks \d+ weights of the model, such as .*{without}"):
        full_weights(config, model_config(config))


def test_weights_that_cannot_be_read_are_named(whole: Path, tmp_path: Path) -> None:
    config = copied(whole, tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match=f"the weights in {tmp_path} cannot be read"):
        full_weights(config, model_config(config))
