"""From a configuration to what is asked: files are read, scorers imported, before the first eval is due."""

from dataserver.client import DataClient
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.environments import load_environment
from orchestrator.evals.prompt_questions import PromptQuestions
from orchestrator.evals.prompts import load_prompts
from orchestrator.evals.questions import Questions
from orchestrator.evals.scorers import make_scorer


def load_questions(config: EvalConfig, client: DataClient | None = None) -> Questions:
    """What `[[evals]]` asks; `client` is needed for prompts of a store. Raises `InvalidConfigError`."""
    if config.environment is not None:
        return load_environment(config)
    prompts = load_prompts(config, client)
    return PromptQuestions(config=config, prompts=prompts, scorer=make_scorer(config.scorer, prompts))
