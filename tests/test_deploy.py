"""What lies in deploy/: no secrets, no root, pinned versions; checked by its programs where they are."""

import configparser
import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from sfumato.serve.metrics import Metrics

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.iterdir() if path.is_file())


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: (instruction, the rest), lines that go on put together."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.strip().partition(" ") for line in lines) if word]


def last_stage() -> list[tuple[str, str]]:
    every = instructions()
    return every[max(i for i, (word, _) in enumerate(every) if word == "FROM") :]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    # Keys come more than once, as lists do in systemd; the last of each is kept.
    found = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(DEPLOY / "sfumato.service")
    return found


@pytest.fixture(scope="module")
def nginx() -> str:
    return re.sub(r"#.*", "", (DEPLOY / "nginx.conf").read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_holds_a_secret(path: Path):
    text = path.read_text()
    assert not re.search(r"BEGIN [A-Z ]*PRIVATE KEY|sfumato_[A-Za-z0-9_-]{20,}|://[^/\s$:]+:[^@/\s$]+@", text)
    # What is called a password, a key or a secret is a reference to one.
    for name, value in re.findall(r"(?i)(\w*(?:password|secret|token|api_key)\w*)\s*[=:]\s*(\S+)", text):
        assert re.match(r"[\"'\[]?(-?\.?/|\$|database_password\b)", value), (name, value)


def test_images_are_pinned_to_a_version(compose: dict[str, Any]):
    stages = {rest.split(" AS ")[1] for word, rest in instructions() if word == "FROM" and " AS " in rest}
    named = [rest.split(" AS ")[0] for word, rest in instructions() if word == "FROM"]
    images = [name for name in named if name not in stages] + [compose["services"]["database"]["image"]]
    assert len(images) == 4
    for image in images:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+-[a-z0-9-]+", image), image


def test_the_images_python_is_one_that_the_library_takes():
    (python,) = {rest.split(" AS ")[0] for word, rest in instructions() if rest.startswith("python:")}
    assert python.startswith("python:3.11.")
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


def test_packages_are_installed_at_the_pinned_versions():
    runs = " ".join(rest for word, rest in instructions() if word == "RUN")
    assert re.findall(r"pip install (\S+ \S+)", runs) == ["-c constraints.txt"]
    assert re.findall(r"npm (\w+)", runs) == ["ci", "run"]


def test_the_container_has_no_pytorch_unless_it_is_asked_for(compose: dict[str, Any]):
    (extras,) = (rest for word, rest in instructions() if word == "ARG" and rest.startswith("EXTRAS="))
    assert extras == "EXTRAS=serve"
    assert any('".[${EXTRAS}]"' in rest for word, rest in instructions() if word == "RUN")
    assert compose["services"]["service"]["build"]["args"]["EXTRAS"] == "${SFUMATO_EXTRAS:-serve}"
    assert dict(last_stage())["CMD"] == '["/models/model.onnx"]'
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    assert not [each for each in needed if re.match(r"torch\b|sfumato\[", each)]
    assert any(each.startswith("onnxruntime") for each in needed)


def test_the_container_runs_as_nobody_and_can_be_asked_how_it_is(compose: dict[str, Any]):
    words = dict(last_stage())
    assert words["USER"] == "10001:10001" == compose["services"]["service"]["user"]
    assert "/health/ready" in words["HEALTHCHECK"]
    after = [word for word, _ in last_stage()]
    assert "RUN" not in after[after.index("USER") :]


def test_nothing_in_the_container_file_names_an_architecture():
    # Its base images are published for amd64 and arm64. Whether it builds on either is not tried here: that
    # needs a builder and a registry.
    for word, rest in instructions():
        assert word != "ADD"
        assert "--platform" not in rest
        assert not re.search(r"amd64|x86_64|arm64|aarch64", rest), (word, rest)


def test_only_what_the_image_is_made_of_is_sent_to_its_build():
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    copied = {
        source.rstrip("/").split("/")[0]
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)


def test_the_service_can_write_nothing_and_become_nobody(compose: dict[str, Any]):
    service = compose["services"]["service"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["tmpfs"] == ["/tmp"]
    assert all("no-new-privileges:true" in each["security_opt"] for each in compose["services"].values())
    assert [volume for volume in service["volumes"] if not volume.endswith(":ro")] == []


def test_nothing_but_the_service_is_reached_and_that_from_this_machine_alone(compose: dict[str, Any]):
    assert compose["services"]["service"]["ports"] == ["127.0.0.1:8000:8000"]
    assert "ports" not in compose["services"]["database"]
    assert compose["services"]["database"]["networks"] == ["inside"]
    assert compose["networks"]["inside"] == {"internal": True}


def test_the_database_lies_in_a_volume_where_this_version_keeps_it(compose: dict[str, Any]):
    database = compose["services"]["database"]
    assert re.search(r"-pg(\d+)-", database["image"])[1] == "18"  # type: ignore[index]
    assert database["volumes"] == ["database:/var/lib/postgresql"]  # from 18 on; before, its folder data


def test_the_service_has_time_to_finish(compose: dict[str, Any], unit: configparser.ConfigParser):
    assert int(compose["services"]["service"]["stop_grace_period"].rstrip("s")) > 30
    assert int(unit["Service"]["TimeoutStopSec"]) > 30


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("User", "sfumato"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("PrivateDevices", "yes"),
        ("RestrictNamespaces", "yes"),
        ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"),
        ("SystemCallArchitectures", "native"),
        ("UMask", "0077"),
    ],
)
def test_the_unit_is_hardened(unit: configparser.ConfigParser, key: str, value: str):
    assert unit["Service"][key] == value


def test_nginx_speaks_modern_tls_and_hands_no_key_that_came_in_clear_on(nginx: str):
    assert re.search(r"ssl_protocols TLSv1\.2 TLSv1\.3;", nginx)
    plain, secure = re.findall(r"server \{\s+listen.*?\n    \}\n", nginx, flags=re.DOTALL)
    assert "proxy_pass" not in plain
    assert "return 403" in plain
    assert "listen 443 ssl" in secure


def test_nginx_logs_no_address_that_was_asked_for(nginx: str):
    (written,) = re.findall(r"log_format \w+ (.*?);", nginx, flags=re.DOTALL)
    assert not re.search(r"\$(request|request_uri|uri|args|query_string|document_uri|http_\w+)\b", written)
    assert re.findall(r"error_log \S+ (\w+);", nginx) == ["crit"]


def test_nginx_passes_addresses_on_as_they_were_written(nginx: str):
    assert re.findall(r"proxy_pass (\S+);", nginx) == ["http://sfumato"]  # with a path, it would decode them


def test_documents_name_files_that_are_there():
    text = (ROOT / "docs" / "deployment.md").read_text()
    named = set(re.findall(r"deploy/([\w.]+\.(?:yaml|service|conf)|Dockerfile)", text))
    assert named == {"compose.yaml", "sfumato.service", "nginx.conf"}
    assert all((DEPLOY / name).exists() for name in named)


# The programs themselves, where they are installed.


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """nginx's settings, with the paths and ports of a test."""
    if shutil.which("nginx") is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "fullchain.pem"
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=cloud.example"),
        *("-keyout", key, "-out", certificate),
    )
    text = (DEPLOY / "nginx.conf").read_text()
    for old, new in {
        "/etc/ssl/sfumato/fullchain.pem": certificate,
        "/etc/ssl/sfumato/private-key.pem": key,
        "/var/log/nginx": tmp_path,
        "/run/nginx.pid": tmp_path / "nginx.pid",
        # Ports that anybody may open, and no IPv6, which a container may lack.
        "listen [::]:80;": "",
        "listen [::]:443 ssl http2;": "",
        "listen 80;": "listen 18080;",
        "listen 443 ": "listen 127.0.0.1:18443 ",
        "server 127.0.0.1:8000;": "server 127.0.0.1:9;",  # nothing
    }.items():
        assert old in text
        text = text.replace(old, str(new))
    path = tmp_path / "nginx.conf"
    path.write_text(text)
    return path


def test_nginx_takes_its_settings(configured: Path):
    run("nginx", "-t", "-c", configured, "-e", configured.with_name("error.log"))


def test_nginx_counts_the_addresses_of_one_customer_together(configured: Path):
    text = configured.read_text().replace("rate=50r/s", "rate=1r/m").replace("burst=100", "burst=1")
    text = text.replace("ssl_session_tickets off;", "set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;")
    configured.write_text(f"daemon off;\n{text}")
    command = ["nginx", "-c", str(configured), "-e", str(configured.with_name("error.log"))]
    with subprocess.Popen(command) as nginx, httpx.Client(verify=False, timeout=20) as client:
        try:
            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", 18443)):
                    break
                time.sleep(0.05)

            def asked(address: str) -> int:
                return client.get("https://127.0.0.1:18443/v1", headers={"X-Real-IP": address}).status_code

            # Nobody is behind it: 502 is what is let through.
            assert [asked(f"2001:db8::a0a:{part}") for part in ("1", "2", "a0a")] == [502, 502, 429]
            assert asked("2001:db8:0:0:ffff::") == 429
            assert asked("2001:db8:a0a:a0a::1") == 502
            assert [asked(f"192.0.2.{part}") for part in (1, 1, 1, 2)] == [502, 502, 429, 502]
        finally:
            nginx.terminate()


def test_systemd_takes_the_unit(tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text = (DEPLOY / "sfumato.service").read_text().replace("/opt/sfumato/bin/sfumato", "/bin/true")
    (tmp_path / "sfumato.service").write_text(text)
    run("systemd-analyze", "verify", tmp_path / "sfumato.service")


def test_hadolint_has_nothing_to_say():
    # The extra `lint` puts it beside this Python, which need not be on the path.
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    run(hadolint, DEPLOY / "Dockerfile")


def test_compose_takes_its_file():
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker compose is not installed")
    run(docker, "compose", "-f", DEPLOY / "compose.yaml", "config", "--quiet")


def test_the_dashboard_and_the_alerts_ask_for_what_the_service_counts():
    """Of Grafana, and of the alerts of the deployment guide."""
    board = json.loads((DEPLOY / "grafana" / "sfumato.json").read_text())
    drawn = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    text = (ROOT / "docs" / "deployment.md").read_text()
    (block,) = re.findall(r"```yaml\n(groups:.*?)```", text, flags=re.DOTALL)
    alerts = [rule["expr"] for group in yaml.safe_load(block)["groups"] for rule in group["rules"]]
    metrics = Metrics(lambda: 0)
    metrics.count_answer("POST", "/v1/classifiers/{classifier}/classify", 200, 0.01)
    metrics.count_pass(4, 0.01)
    metrics.count_not_protected()
    exported: dict[str, set[str]] = {}  # the names of all series, and the labels of each
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            exported.setdefault(sample.name, set()).update(sample.labels)
    for query in [*drawn, *alerts]:
        names = set(re.findall(r"\bsfumato_\w+", query))
        assert names
        assert names <= set(exported), query
        grouped = [label for group in re.findall(r"by \((.*?)\)", query) for label in group.split(", ")]
        asked = {*re.findall(r"(\w+)(?:=~|!=|!~|=)\"", query), *grouped}
        assert asked <= set.union(*(exported[name] for name in names)), query
    ends = re.compile(r"_(total|created|bucket|sum|count)$")
    shown = {ends.sub("", name) for query in drawn for name in re.findall(r"\bsfumato_\w+", query)}
    assert shown == {ends.sub("", name) for name in exported}
