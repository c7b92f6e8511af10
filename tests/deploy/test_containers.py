"""Container files and manifests, read as the tools that use them would: every reference leads somewhere."""

import re
import shutil
import subprocess
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from common.cli.main import main
from common.config import load
from common.config.schema import STAGES
from tests.deploy.machine import MUST_RUN

yaml = pytest.importorskip("yaml")

CONTAINERS = Path(__file__).parents[2] / "deploy" / "containers"
KUBERNETES = CONTAINERS / "kubernetes"
KUBERNETES_VERSIONS = ("1.29", "1.34")
RIGHTS = {"fib": {"NET_ADMIN"}}
WORKLOADS = {
    "speaker": "StatefulSet", "rib": "StatefulSet", "policy": "Deployment", "exporter": "Deployment",
    "fib": "DaemonSet", "status": "Deployment",
}  # fmt: skip


def compose(name: str) -> dict:
    return yaml.safe_load((CONTAINERS / name).read_text())["services"]


def manifests() -> list[dict]:
    """Return every object that the kustomization lists."""
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    return [each for name in listed for each in yaml.safe_load_all((KUBERNETES / name).read_text())]


def of_kind(*kinds: str) -> dict[str, dict]:
    return {each["metadata"]["name"]: each for each in manifests() if each["kind"] in kinds}


def is_command(words: list[str]) -> bool:
    """Tell whether the command line has a command of that name and only options it knows."""
    known = CliRunner().invoke(main, [words[0], "--help"])
    return known.exit_code == 0 and all(word in known.output for word in words if word.startswith("--"))


@pytest.mark.parametrize("name", ["compose.yaml", "compose.tcp.yaml"])
def test_compose_runs_each_stage_with_its_rights_alone(name):
    """Each stage is a container: read-only, no capability but its own, and asked itself whether it is well."""
    services = compose(name)
    assert set(services) == set(STAGES)
    for stage, service in services.items():
        assert service["command"][:2] == ["stage", stage] and is_command(service["command"])
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert set(service.get("cap_add", [])) <= RIGHTS.get(stage, set()) | {"NET_BIND_SERVICE"}
        assert "NET_BIND_SERVICE" not in service.get("cap_add", []) or stage == "speaker"
        test = service["healthcheck"]["test"]
        assert test == ["CMD", "headrace", "health", stage] and is_command(test[2:])


def test_over_ipc_the_middle_has_no_network():
    """Policy, rib and exporter reach nothing but the bus."""
    services = compose("compose.yaml")
    assert all(services[stage]["network_mode"] == "none" for stage in ("policy", "rib", "exporter"))
    assert all("run:/run/headrace" in service["volumes"] for service in services.values())


def test_over_tcp_each_stage_has_its_own_keys():
    """No container sees another's secret."""
    for stage, service in compose("compose.tcp.yaml").items():
        assert [volume for volume in service["volumes"] if "/keys" in volume] == [
            f"./keys/{stage}:/etc/headrace/keys:ro"
        ]


def test_the_image_has_no_compiler_and_no_root():
    """The wheel is made in the first stage; the second takes only wheels."""
    first, second = (CONTAINERS / "Containerfile").read_text().split("\nFROM ")[1:]
    assert "gcc" in first and "gcc" not in second
    assert "pip wheel" in first and "pip" not in second
    assert re.search(r"^USER 7179:7179$", second, re.MULTILINE)


def test_the_image_is_built_from_what_it_copies_alone():
    """Whoever builds it elsewhere sends no secret and no object of his machine along."""
    lines = (CONTAINERS / "Containerfile.dockerignore").read_text().splitlines()
    copied = re.findall(r"(?m)^COPY (?!--from)(.*) \S+$", (CONTAINERS / "Containerfile").read_text())
    assert lines[1] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == set(" ".join(copied).split())


def test_kubernetes_has_each_stage_as_what_it_is():
    """Those with state keep their names, those without are as many as one likes, the fib is on its node."""
    found = {name: each["kind"] for name, each in of_kind("StatefulSet", "Deployment", "DaemonSet").items()}
    assert found == WORKLOADS


@pytest.mark.parametrize("stage", STAGES)
def test_a_pod(stage):
    """Rights, probes, places to write, and that what is mounted is there."""
    workload = of_kind("StatefulSet", "Deployment", "DaemonSet")[stage]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:2] == ["stage", stage]
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] and context["allowPrivilegeEscalation"] is False
    assert context["capabilities"]["drop"] == ["ALL"]
    assert set(context["capabilities"].get("add", [])) == RIGHTS.get(stage, set())
    assert pod["securityContext"].get("runAsNonRoot") or stage in RIGHTS
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        words = container[probe]["exec"]["command"]
        assert words[:3] == ["headrace", "health", stage] and is_command(words[1:])
    assert "--alive" not in container["readinessProbe"]["exec"]["command"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_what_pods_mount_is_generated():
    """ConfigMap and Secrets come from the kustomization, each secret from a file of its stage."""
    made = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    secrets = {each["name"]: each["files"] for each in made["secretGenerator"]}
    assert secrets == {f"headrace-key-{stage}": [f"{stage}.secret=keys/{stage}/{stage}.secret"] for stage in STAGES}
    assert made["configMapGenerator"] == [{"name": "headrace", "files": ["headrace.toml"]}]
    for stage, workload in of_kind("StatefulSet", "Deployment", "DaemonSet").items():
        volumes = workload["spec"]["template"]["spec"]["volumes"]
        assert {"headrace"} == {each["configMap"]["name"] for each in volumes if "configMap" in each}
        assert {f"headrace-key-{stage}"} == {each["secret"]["secretName"] for each in volumes if "secret" in each}


def test_the_configuration_leads_to_the_services():
    """Each endpoint is a service of the manifests, at a port it has, and each stage has a key in its role."""
    config = load(KUBERNETES / "headrace.toml")
    services = of_kind("Service")
    for (stage, _), endpoint in config.endpoints.items():
        for what in ("bus", "control"):
            host, _, port = getattr(endpoint, what).removeprefix("tcp://").rpartition(":")
            *_, service, namespace, domain = host.split(".")
            assert (namespace, domain) == ("headrace", "svc")
            assert services[service]["spec"]["selector"]["stage"] == stage
            assert int(port) in {each["port"] for each in services[service]["spec"]["ports"]}
    assert {key.role for key in config.public_keys.values()} == set(STAGES)


def test_a_drain_takes_no_table_and_no_session_unasked():
    """Budgets for those that hold state, and for those of which one must stay."""
    budgets = of_kind("PodDisruptionBudget")
    assert {name: set(each["spec"]) - {"selector"} for name, each in budgets.items()} == {
        "speaker": {"maxUnavailable"},
        "rib": {"maxUnavailable"},
        "policy": {"minAvailable"},
        "exporter": {"minAvailable"},
    }


def test_nothing_may_call_but_who_reads():
    """The network lets in what the table of channels says, beside it nothing."""
    policies = of_kind("NetworkPolicy")
    assert "ingress" not in policies["nothing-else"]["spec"]
    readers = {
        stage: {
            peer["podSelector"]["matchLabels"]["stage"]
            for rule in policies[stage]["spec"]["ingress"]
            for peer in rule.get("from", [])
            if "podSelector" in peer and {"port": 7700} in rule["ports"]
        }
        for stage in ("speaker", "policy", "rib", "exporter")
    }
    assert readers == {
        "speaker": {"policy", "rib"},
        "policy": {"rib"},
        "rib": {"exporter"},
        "exporter": {"speaker"},
    } | {"rib": {"exporter", "fib"}}


@pytest.mark.skipif(
    not MUST_RUN and not (shutil.which("kubectl") and find_spec("kubernetes_validate")),
    reason="needs kubectl and kubernetes-validate",
)
def test_kustomize_builds_what_kubernetes_knows(tmp_path):
    """What `kubectl apply -k` would send is built, of fields that Kubernetes knows, with values they may have."""
    import kubernetes_validate

    shutil.copytree(KUBERNETES, tmp_path / "made")
    for stage in STAGES:
        secret = tmp_path / "made" / "keys" / stage / f"{stage}.secret"
        secret.parent.mkdir(parents=True)
        secret.write_text("0" * 40)
    result = subprocess.run(["kubectl", "kustomize", tmp_path / "made"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    built = list(yaml.safe_load_all(result.stdout))
    for each in built:
        for version in KUBERNETES_VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)
    kinds = Counter(each["kind"] for each in built)
    assert kinds["Secret"] == len(STAGES) and kinds["ConfigMap"] == 1
    assert set(WORKLOADS.values()) <= set(kinds)
    assert all(each["kind"] == "Namespace" or each["metadata"]["namespace"] == "headrace" for each in built)
