"""Samples as text."""

from dataserver.render.conversation import Conversation


def conversation(*turns, tools=()):
    return Conversation(messages=tuple({"role": role, "content": text} for role, text in turns), tools=tuple(tools))


def words(tokenizer, sample):
    """The runs of targets."""
    runs, before = [], False
    for token, target in zip(sample.input_ids.tolist(), sample.loss_mask.tolist(), strict=True):
        if target and not before:
            runs.append([])
        if target:
            runs[-1].append(token)
        before = target
    return [tokenizer.decode(run) for run in runs]
