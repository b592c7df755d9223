"""The manifests fit the schemas of Kubernetes, their own configurations, and the rule of who ends whom.

There is no cluster where tests run: what a cluster makes of them is not tested.
"""

import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes"
VERSIONS = ("1.31", "1.36")
KUSTOMIZATION = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())


def documents() -> list[dict[str, Any]]:
    return [
        document
        for name in KUSTOMIZATION["resources"]
        for document in yaml.safe_load_all((MANIFESTS / name).read_text())
    ]


def named(kind: str, name: str) -> dict[str, Any]:
    return next(each for each in documents() if (each["kind"], each["metadata"]["name"]) == (kind, name))


def pod(kind: str, name: str) -> dict[str, Any]:
    return named(kind, name)["spec"]["template"]["spec"]


def config(name: str) -> dict[str, Any]:
    return tomllib.loads((MANIFESTS / "config" / name).read_text())


PODS = [("Deployment", "dataserver"), ("StatefulSet", "engine"), ("Job", "trainer"), ("Job", "orchestrator")]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_fits_the_schema_strictly(version: str) -> None:
    for document in documents():
        kubernetes_validate.validate(document, version, strict=True)


def test_a_field_that_does_not_exist_would_be_seen() -> None:
    document = named("Deployment", "dataserver")
    document["spec"]["template"]["spec"]["restartPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="restartPolice"):
        kubernetes_validate.validate(document, VERSIONS[0], strict=True)


def test_what_crashes_is_restarted_and_what_ended_well_stays_ended() -> None:
    assert "restartPolicy" not in pod("Deployment", "dataserver")  # always
    assert "restartPolicy" not in pod("StatefulSet", "engine")
    assert pod("Job", "orchestrator")["restartPolicy"] == "OnFailure"
    assert pod("Job", "trainer")["restartPolicy"] == "Never"
    assert named("Job", "trainer")["spec"]["backoffLimit"] < named("Job", "orchestrator")["spec"]["backoffLimit"]


def test_whatever_pods_mount_exists() -> None:
    maps = {each["name"]: [Path(file).name for file in each["files"]] for each in KUSTOMIZATION["configMapGenerator"]}
    for kind, name in PODS:
        spec = pod(kind, name)
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        (container,) = spec["containers"]
        assert container["image"] in {image["name"] for image in KUSTOMIZATION["images"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        if "config" in volumes:
            (file,) = maps[volumes["config"]["configMap"]["name"]]
            assert any(argument.endswith(f"/{file}") for argument in container["args"])
            assert (MANIFESTS / "config" / file).is_file()


def test_probes_and_services_ask_where_the_programs_listen() -> None:
    listens = {"dataserver": config("server.toml"), "orchestrator": config("orchestrator.toml")["serve"]}
    for name, listen in listens.items():
        ports = {key: int(listen[setting].rpartition(":")[2]) for key, setting in PORTS.items()}
        (container,) = pod("Deployment" if name == "dataserver" else "Job", name)["containers"]
        assert {port["name"]: port["containerPort"] for port in container["ports"]} == ports
        assert {port["name"]: port["port"] for port in named("Service", name)["spec"]["ports"]} == ports
        assert container["livenessProbe"]["grpc"]["port"] == container["startupProbe"]["grpc"]["port"] == ports["grpc"]
    assert listens["orchestrator"]["advertise"] == "orchestrator:50061"
    replicas = named("StatefulSet", "engine")["spec"]["replicas"]
    urls = [engine["url"] for engine in config("orchestrator.toml")["engines"]]
    assert urls == [f"http://engine-{number}.engine:8000" for number in range(replicas)]


PORTS = {"grpc": "listen", "metrics": "metrics_listen"}


def test_the_ledgers_password_is_in_a_secret() -> None:
    (container,) = pod("Deployment", "dataserver")["containers"]
    (ledger,) = [each for each in container["env"] if each["name"] == "DATASERVER_LEDGER"]
    assert ledger["valueFrom"] == {"secretKeyRef": {"name": "dataserver", "key": "ledger"}}
    assert "ledger" not in config("server.toml")
