"""Wrong input of every kind: one clear message, the right exit code, nothing made."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import BINARY as BIN
from conftest import ROOT, SETTINGS, World

USAGE, CONFIG, CREDENTIALS, CAPACITY, CONFLICT, REMOTE = 2, 10, 11, 12, 13, 15


@pytest.fixture(autouse=True)
def as_before(world: World) -> Iterator[None]:
    """Whatever a test writes down or breaks is put right again, and nothing of it may have made anything."""
    world.before = world.marks()
    yield
    world.no_faults()
    (world.folder / "nemo.toml").write_text(SETTINGS)
    assert world.writes(world.before) == []


def refused(world: World, code: int, *args: str, **env: str) -> str:
    """The message of a command that is refused, by its exit code."""
    done = world.nemo(*args, **env)
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "panicked" not in done.stderr
    assert "next: " in done.stderr, done.stderr
    return done.stderr


def verdicts(world: World, code: int, *args: str, **env: str) -> dict[str, dict[str, str]]:
    """The answers of `nemo check` by question."""
    # The sandbox sets variables of its own on the way in: `env` has the last word.
    done = world.exec("env", *[f"{name}={value}" for name, value in env.items()], BIN, "check", "--output", "json", *args)
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    report = json.loads(done.stdout.splitlines()[0])
    return {answer["question"]: answer for answer in report["answers"]}


def test_all_is_well_to_begin_with(world: World) -> None:
    answers = verdicts(world, 0)
    assert {answer["verdict"] for answer in answers.values()} == {"ok"}, answers
    for question in ("credentials", "offering", "instance-type", "quota-gpu", "addresses", "names", "price", "hub-token", "hub-access", "image-vllm-runtime", "chart-lws", "filesystem"):
        assert question in answers


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "secret is wrong"),
        ({"AWS_ACCESS_KEY_ID": "AKIANOBODYKNOWSTHIS0"}, "access key is not known"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "AWS_PROFILE"),
    ],
    ids=["secret", "key", "missing"],
)
def test_wrong_credentials_are_told_once(world: World, key: dict[str, str], words: str) -> None:
    done = world.exec("env", *[f"{name}={value}" for name, value in key.items()], BIN, "up", "--yes")
    assert done.returncode == CREDENTIALS, done.stdout + done.stderr
    assert words in done.stderr
    assert len(re.findall("^RED", done.stderr, re.M)) == 1, done.stderr


def test_expired_credentials(world: World) -> None:
    world.fault(service="*", operation="*", effect="expired")
    assert "sign in again" in refused(world, CREDENTIALS, "up", "--yes")


def test_a_region_without_the_type(world: World) -> None:
    answer = verdicts(world, CAPACITY, "--region", "us-west-1", "--price", "60")["offering"]
    assert answer["verdict"] == "red"
    assert "us-west-1 does not offer p5en.48xlarge" in answer["answer"]
    assert "us-east-2" in answer["fix"]


def test_a_zone_without_the_type(world: World) -> None:
    answer = verdicts(world, CAPACITY, "--zone", "use2-az1")["offering"]
    assert "use2-az1 does not offer p5en.48xlarge" in answer["answer"]
    assert "use2-az2" in answer["fix"]


def test_an_unknown_instance_gets_the_nearest_names(world: World) -> None:
    said = refused(world, CONFIG, "up", "--instance", "p5n.48xlarge", "--yes")
    assert re.search('did you mean .*"p5en.48xlarge"', said), said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gpu]\nnodse = 2\n", 'nemo.toml:2: unknown setting gpu.nodse = 2; did you mean "gpu.nodes"?'),
        ("[gpu]\nnodes = \"two\"\n", 'nemo.toml:2: gpu.nodes = "two": must be a whole number from 1 to 100'),
        ("name = \"a\"\nregion = us-east-2\n", "nemo.toml:2: "),
        ("name = \"My Cluster\"\n", 'nemo.toml:1: name = "My Cluster": must be lowercase letters'),
    ],
    ids=["key", "value", "syntax", "name"],
)
def test_a_malformed_file_is_told_with_its_place(world: World, text: str, words: str) -> None:
    (world.folder / "nemo.toml").write_text(text)
    assert words in refused(world, CONFIG, "up", "--yes")


def test_a_quota_that_is_too_small_says_how_to_raise_it(world: World) -> None:
    world.admin("/_sandbox/quotas", {"L-417A185B": 191})
    try:
        answer = verdicts(world, CAPACITY)["quota-gpu"]
        assert "is enough for 0" in answer["answer"]
        assert "request-service-quota-increase" in answer["fix"] and "--desired-value 192" in answer["fix"]
    finally:
        world.admin("/_sandbox/quotas", {"L-417A185B": 192})


def test_an_endpoint_that_answers_html(world: World) -> None:
    world.fault(service="sts", operation="*", effect="html", status=200)
    said = refused(world, REMOTE, "up", "--yes")
    assert "HTML" in said and "AWS_ENDPOINT_URL" in said


def test_a_404_where_json_was_due(world: World) -> None:
    answers = verdicts(world, REMOTE, HF_ENDPOINT="http://hub.sandbox:18090/nothing/is/here")
    assert answers["hub-token"]["verdict"] == answers["hub-access"]["verdict"] == "red"
    assert "404" in answers["hub-access"]["answer"] and "hub.endpoint" in answers["hub-access"]["fix"]


@pytest.mark.parametrize(
    ("token", "code", "words"),
    [("hf_nobody", CREDENTIALS, "does not know this token"), ("hf_sandbox_reader", CREDENTIALS, "may not read it"), ("", CREDENTIALS, "only with a token")],
    ids=["unknown", "not-admitted", "none"],
)
def test_tokens_of_the_hub(world: World, token: str, code: int, words: str) -> None:
    done = world.exec("env", f"HF_TOKEN={token}", BIN, "check")
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stdout


def test_no_price_asks_for_one_and_takes_it(world: World) -> None:
    world.fault(service="pricing", operation="*", effect="access-denied")
    answer = verdicts(world, CONFIG)["price"]
    assert "--price" in answer["fix"]
    assert verdicts(world, 0, "--price", "50")["price"]["verdict"] == "warn"  # of the others none is known


def test_wrong_usage_is_told_in_json_where_json_was_asked_for(world: World) -> None:
    done = world.exec(BIN, "up", "--output", "json", "--nope")
    assert done.returncode == 2, done.stdout + done.stderr
    failure = json.loads(done.stdout.splitlines()[-1])["failure"]
    assert failure["exit_code"] == 2 and "--nope" in failure["message"], failure


def test_what_has_to_come_first_is_all_that_is_said(world: World) -> None:
    said = refused(world, 2, "weights", "download", "--yes")
    assert said.splitlines() == ["error: weights: needs storage, which is not there", "next: nemo up --to storage"], said


def test_no_cluster_is_told_with_the_step_that_makes_it(world: World) -> None:
    assert "next: nemo up --to cluster" in refused(world, 2, "platform", "status")


def test_config_show_tells_where_each_value_is_from(world: World) -> None:
    (world.folder / "nemo.toml").write_text("[gpu]\nnodes = 2\n")
    shown = json.loads(world.ok("config", "show", "--set", "bench.isl=64", "--output", "json", NEMO_BENCH_OSL="32").stdout)
    origins = {setting["key"]: setting["origin"] for setting in shown["settings"]}
    assert origins["gpu.nodes"] == {"layer": "file", "file": "nemo.toml", "line": 2}
    assert origins["bench.osl"] == {"layer": "environment", "variable": "NEMO_BENCH_OSL"}
    assert origins["bench.isl"]["layer"] == "flag"
    assert origins["hub.endpoint"] == {"layer": "environment", "variable": "HF_ENDPOINT"}
    assert origins["network.cidr"] == {"layer": "default"}


def test_config_init_never_writes_over_a_file(world: World) -> None:
    refused(world, CONFLICT, "config", "init")
    assert (world.folder / "nemo.toml").read_text() == SETTINGS


def test_no_region_at_all(world: World) -> None:
    done = world.exec("env", "-u", "AWS_REGION", "-u", "AWS_DEFAULT_REGION", BIN, "check")
    assert done.returncode == CONFIG, done.stdout + done.stderr
    assert "no region is set" in done.stderr and "--region" in done.stderr


SOMEBODY_ELSE = """
import boto3, json, time
trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "eks.amazonaws.com"}, "Action": "sts:AssumeRole"}]}
role = boto3.client("iam").create_role(RoleName="theirs", AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
subnets = [subnet["SubnetId"] for subnet in boto3.client("ec2").describe_subnets()["Subnets"]][:2]
eks = boto3.client("eks")
while True:  # a new role cannot be used at once
    try:
        eks.create_cluster(name="taken", roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
        break
    except eks.exceptions.InvalidParameterException:
        time.sleep(0.1)
"""


def test_a_cluster_of_the_same_name_that_is_not_ours(world: World) -> None:
    made = world.exec(sys.executable, "-c", SOMEBODY_ELSE, timeout=60)
    assert made.returncode == 0, made.stderr
    world.before = world.marks()
    answer = verdicts(world, CONFLICT, "--name", "taken")["names"]
    assert "cluster taken" in answer["answer"] and "--name" in answer["fix"]
    assert "not ours" in refused(world, CONFLICT, "up", "--name", "taken", "--yes")


@pytest.fixture
def notes(world: World) -> Iterator[Path]:
    """The state file, whatever a test writes into it."""
    path = world.folder / ".nemo" / "nemo.toml"
    path.parent.mkdir(exist_ok=True)
    yield path
    path.unlink()


def test_state_of_a_newer_version(world: World, notes: Path) -> None:
    text = 'version = 9\nwritten_by = "7.1.0"\n'
    notes.write_text(text)
    done = world.nemo("up", "--yes")
    assert done.returncode == CONFIG, done.stderr
    assert ".nemo/nemo.toml" in done.stderr and "use nemo 7.1.0 or later" in done.stderr
    assert notes.read_text() == text


def test_state_that_is_cut(world: World, notes: Path) -> None:
    text = 'version = 1\nwritten_by = "0.1.0"\ndeployment = "ne'
    notes.write_text(text)
    message = refused(world, CONFIG, "up", "--yes")
    assert ".nemo/nemo.toml" in message and "nemo status" in message
    assert notes.read_text() == text


def in_small_folder(world: World, options: str, fill: str) -> str:
    """`nemo up` in a file system of its own; it must end as a local failure that says what to do."""
    place = world.folder / "home"
    done = world.exec("unshare", "--mount", "sh", "-c", f"mount -t tmpfs -o {options} tmpfs {place} && cd {place} && {fill}; exec {BIN} up --yes")
    assert done.returncode == 17, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stderr


def test_read_only_folder(world: World) -> None:
    assert "Read-only file system" in in_small_folder(world, "ro", "true")


def test_full_disk(world: World) -> None:
    """Lock and log are there; the first note does not fit, so nothing is begun."""
    message = in_small_folder(world, "size=16k", "mkdir .nemo && : > .nemo/nemo.lock && head -c 100000 /dev/zero > fill 2> /dev/null")
    assert "No space left on device" in message


def test_notes_of_another_region_or_deployment_are_never_acted_on(world: World, notes: Path) -> None:
    """Elsewhere nothing of ours is found: that is no proof that nothing is left."""
    text = 'version = 1\nwritten_by = "0.1.0"\ndeployment = "nemo"\naccount = "123456789012"\nregion = "us-east-2"\n# end of state\n'
    notes.write_text(text)
    for words in (["cleanup", "--yes"], ["status"], ["up", "--yes"]):
        assert "was made in us-east-2" in refused(world, CONFIG, *words, "--region", "us-west-2")
    notes.write_text(text.replace("123456789012", "999999999999"))
    for words in (["cleanup", "--yes"], ["status"], ["weights", "status"]):
        assert "account 999999999999" in refused(world, CREDENTIALS, *words)
    notes.write_text(text.replace('deployment = "nemo"', 'deployment = "other"'))
    assert 'about the deployment "other"' in refused(world, CONFIG, "cleanup", "--yes")
    assert notes.exists()


@pytest.mark.parametrize(
    ("setting", "exit_code", "words"),
    [
        ("AWS_MAX_ATTEMPTS=0", CONFIG, "AWS_MAX_ATTEMPTS=0"),
        ("AWS_RETRY_MODE=x", CONFIG, "AWS_RETRY_MODE=x"),
        ("AWS_ENDPOINT_URL=nope", CONFIG, "AWS_ENDPOINT_URL=nope"),
        ("AWS_ACCESS_KEY_ID=AKIA\n", CREDENTIALS, "access key id"),
        ("HF_TOKEN=hf_a\nb", CREDENTIALS, "Hugging Face token"),
    ],
)
def test_environment_that_the_libraries_panic_at(world: World, setting: str, exit_code: int, words: str) -> None:
    done = world.exec("env", setting, BIN, "status")
    assert done.returncode == exit_code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert words in done.stderr and "panicked" not in done.stderr
    assert "hf_a" not in done.stderr


def test_an_answer_that_cannot_be_written_is_no_success(world: World) -> None:
    done = world.exec("sh", "-c", f"{BIN} config schema > /dev/full")
    assert done.returncode == 17 and "No space left on device" in done.stderr, done.stderr
    assert world.exec("sh", "-c", f"{BIN} config schema | head -1").returncode == 0


def test_a_signal_at_the_question_is_a_no(world: World) -> None:
    terminal, ours = pty.openpty()
    with subprocess.Popen(world.command(BIN, "up"), cwd=world.folder, env=world.env(), stdin=ours, stdout=subprocess.DEVNULL, stderr=ours) as asked:
        os.close(ours)
        said = b""
        while b"Make this? [y/N]" not in said:
            said += os.read(terminal, 1 << 16)
        asked.send_signal(signal.SIGINT)
        assert asked.wait(timeout=30) == 130
    os.close(terminal)


def test_a_run_of_nccl_over_sockets_does_not_pass(world: World) -> None:
    log = ROOT / "tests" / "fixtures" / "nccl" / "two_nodes_socket.txt"
    message = refused(world, 16, "test", "cluster", "--log", str(log), "--nodes", "2")
    assert "nemo explain N27" in message
    done = world.nemo("test", "cluster", "--log", str(log), "--nodes", "2", "--output", "json")
    answer = json.loads(done.stdout.splitlines()[0])
    assert (answer["kind"], answer["passed"], answer["run"]["rows"]) == ("cluster-test", False, [])
    assert any("Socket on node-0" in why for why in answer["objections"]), answer["objections"]
    refused(world, 17, "test", "cluster", "--log", "not-here.txt")
