"""What can go wrong in an orchestrator itself; what the data server reports is `dataserver.errors`.

OrchestratorError
├── ScorerError                 an answer cannot be judged: the eval fails
└── EngineError                 a call of an inference engine failed; names the engine and the call
    ├── EngineUnavailableError  no answer in time, or it failed: the engine's state is unknown
    ├── EngineRefusedError      the engine answered no, and is as it was before
    │   └── WeightsMismatchError  names, types or shapes are not those of its model
    ├── UpdateFailedError       an update that began did not end well: restart the engine
    └── GenerationAbortedError  a request was given up before its end
"""


class OrchestratorError(Exception):
    """Base of an orchestrator's own faults; its message says what is wrong, with which value, and what to do."""


class ScorerError(OrchestratorError):
    """A scorer or an environment raised, or said what is no number; the next answer would fare no better."""


class EngineError(OrchestratorError):
    """A call of an engine failed. What it was to generate may be asked of another engine."""

    def __init__(self, engine: str, call: str, what: str) -> None:
        super().__init__(f"engine {engine}: {call}: {what}")
        self.engine = engine
        self.call = call


class EngineUnavailableError(EngineError):
    """No answer in time, or that it failed; the engine may or may not have done what it was asked."""


class EngineRefusedError(EngineError):
    """The engine answered no and is as it was before; the same call fails again."""


class WeightsMismatchError(EngineRefusedError):
    """Names, types or shapes of the offered weights are not those of the engine's model; nothing was written."""


class UpdateFailedError(EngineError):
    """An update began and did not end well: the engine may hold a mix, and must be restarted before it serves."""


class GenerationAbortedError(EngineError):
    """A request was given up before its end: by `abort_requests`, or by the engine."""
