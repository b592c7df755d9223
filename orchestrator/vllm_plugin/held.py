"""What weights a vLLM model holds, by the names and whole shapes that its `load_weights` takes.

vLLM keeps q, k and v as one parameter, gate and up as another, pads vocabularies and splits all of them
over tensor-parallel workers; its layers know the sizes from before. An update that brings part of a fused
parameter, or another shape, would end with status 200 and wrong tokens: so it is compared first.
"""

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor, nn
from vllm.model_executor.layers.attention import is_deferred_attention_layer
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase, MergedColumnParallelLinear, QKVParallelLinear
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from dataserver.weight_buckets import TensorSpec

# How many wrong names a refusal lists.
NAMED = 8

Shape = tuple[int, ...]


def held_shapes(model: nn.Module) -> dict[str, Shape]:
    """Shape of every weight by name; those of experts, whose layout differs from model to model, are left out."""
    found: dict[str, Shape] = {}
    seen: set[int] = set()
    packed: Mapping[str, Sequence[str]] = getattr(model, "packed_modules_mapping", {})
    for path, layer in model.named_modules():
        if isinstance(layer, RoutedExperts) or is_deferred_attention_layer(layer):
            continue
        for name, parameter in layer.named_parameters(recurse=False):
            # Tied weights are one parameter in two places, and are loaded by the first name.
            if id(parameter) not in seen:
                seen.add(id(parameter))
                found.update(_parts(f"{path}.{name}" if path else name, layer, parameter, packed))
    return found


def tied_heads(model: nn.Module) -> list[ParallelLMHead]:
    """Output layers that share the weight of the embeddings: nothing is loaded under their own name."""
    embeddings = {id(layer.weight) for layer in model.modules() if type(layer) is VocabParallelEmbedding}
    heads = (layer for layer in model.modules() if isinstance(layer, ParallelLMHead))
    return [head for head in heads if id(head.weight) in embeddings]


def mismatches(model: nn.Module, dtype: str, pipeline: bool, announced: Sequence[TensorSpec]) -> list[str]:
    """What of it is not as the model has it, one line each; empty when all is.

    `dtype`: that the model computes in. `pipeline`: the model is a part, and other workers hold other weights.
    """
    held = held_shapes(model)
    experts = (path for path, layer in model.named_modules() if isinstance(layer, RoutedExperts))
    loose = tuple(path.rpartition(".")[0] + "." for path in experts)
    lines = [f"{name}: missing" for name in held.keys() - {tensor.name for tensor in announced}]
    for tensor in announced:
        if tensor.name not in held:
            if not pipeline and not tensor.name.startswith(loose):
                lines.append(f"{tensor.name}: the model has no such weight")
        elif tensor.shape != held[tensor.name]:
            lines.append(f"{tensor.name}: shape {list(tensor.shape)}, the model has {list(held[tensor.name])}")
        elif tensor.dtype != dtype:
            lines.append(f"{tensor.name}: {tensor.dtype}, the model has {dtype}")
    return sorted(lines)


def summary(lines: Sequence[str]) -> str:
    """The first of the lines, and how many more there are."""
    more = f"; and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    return "; ".join(lines[:NAMED]) + more


def _parts(
    name: str, layer: nn.Module, parameter: Tensor, packed: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Shape]]:
    module, _, kind = name.rpartition(".")
    parent, _, last = module.rpartition(".")
    prefix = f"{parent}." if parent else ""
    if isinstance(layer, QKVParallelLinear):
        # With more workers than heads of k and v, these are repeated in the layer, not in the checkpoint.
        sizes = [
            layer.total_num_heads * layer.head_size,
            layer.total_num_kv_heads * layer.head_size,
            layer.total_num_kv_heads * layer.v_head_size,
        ]
        for part, size in zip(packed[last], sizes, strict=True):
            yield f"{prefix}{part}.{kind}", _linear(kind, size, layer)
    elif isinstance(layer, MergedColumnParallelLinear):
        for part, size in zip(packed[last], layer.output_sizes, strict=True):
            yield f"{prefix}{part}.{kind}", _linear(kind, size, layer)
    elif isinstance(layer, LinearBase):
        yield name, _linear(kind, layer.output_size, layer)
    elif isinstance(layer, VocabParallelEmbedding) and kind == "weight":
        yield name, (layer.org_vocab_size, layer.embedding_dim)
    else:
        yield name, tuple(parameter.shape)


def _linear(kind: str, rows: int, layer: LinearBase) -> Shape:
    return (rows,) if kind == "bias" else (rows, layer.input_size)
