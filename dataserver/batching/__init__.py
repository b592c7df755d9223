"""Byte space: a plan and its stores become micro-batch buffers.

`table`: the samples of a run's sources, as lengths for planning and as bytes for streaming.
`encode`: one rank's micro-batches of some rounds, as the bytes that go on the wire.
"""
