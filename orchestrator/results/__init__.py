"""What evals came to: kept for good, exported, drawn.

records     one eval of one version, and its answers, as values
schema      tables and their version
table       the append-only table in a database
export      as CSV and JSON
curves      as pictures
"""

from orchestrator.results.records import Answer, EvalResult, EvalState, VersionTokens
from orchestrator.results.table import ResultsTable, open_results

__all__ = ["Answer", "EvalResult", "EvalState", "ResultsTable", "VersionTokens", "open_results"]
