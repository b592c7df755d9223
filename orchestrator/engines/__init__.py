"""Inference engines: what the orchestrator asks of one (`interface`), and vLLM behind HTTP (`vllm_http`)."""
