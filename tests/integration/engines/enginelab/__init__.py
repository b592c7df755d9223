"""What the tests of engines share: a small sender of weights, tiny models, a vLLM server."""
