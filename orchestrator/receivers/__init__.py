"""How weights arrive at an engine, as bytes: files in a shared directory, or messages of a group.

What a receiver yields is a bucket at a time, each weight's bytes in the order of the transfer. It knows no
vLLM: the plugin gives the bytes to a model, the fake engine of the tests keeps their digests.
"""
