from prometheus_client import CollectorRegistry

from orchestrator.metrics import Metrics


def test_prometheus_shows_the_newest_figures_of_each_eval():
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.write(5, {"name": "reverse", "state": "done"}, {"eval/reverse/mean": 0.25})
    metrics.write(10, {"name": "reverse", "state": "failed"}, {"eval/reverse/mean": 0.5})
    figure = {"eval": "reverse", "figure": "mean"}
    assert registry.get_sample_value("orchestrator_eval_figure", figure) == 0.5
    assert registry.get_sample_value("orchestrator_eval_figure", figure | {"figure": "version"}) == 10
    assert registry.get_sample_value("orchestrator_evals_total", {"eval": "reverse", "state": "done"}) == 1
