"""A model that is exposed: who comes in, that the key is in one place, and that the load balancer goes before the network does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from conftest import World

UP = ("up", "--to", "serve", "--instance", "p5en.48xlarge", "--yes", "--output", "json")
EXPOSE = ("--expose", "internal")
INSIDE, ELSEWHERE = "10.9.0.1", "10.77.0.1"  # two clients' addresses; only the first one's network may connect
SETTINGS = '\n[serve]\nallowed_cidrs = "10.9.0.0/16"\ntls_certificate = "tls.crt"\ntls_key = "tls.key"\n'
KEY = "sk-walk.0123456789abcdef"


def result(done: subprocess.CompletedProcess[str]) -> dict:
    return json.loads(done.stdout.splitlines()[-1])


def curl(world: World, host: str, path: str, *args: str, client: str = INSIDE) -> subprocess.CompletedProcess[str]:
    """Its name leads nowhere until AWS has the load balancer ready."""
    patience = ["--retry", "60", "--retry-delay", "1", "--retry-all-errors", "--max-time", "60"] if client == INSIDE else ["--max-time", "5"]
    return world.exec("curl", "-sS", "--cacert", "tls.crt", "--connect-to", f"nemo.example.com:443:{host}:443", "--interface", client, *patience, *args, f"https://nemo.example.com{path}")


def status(world: World, host: str, *args: str, path: str = "/v1/models") -> str:
    done = curl(world, host, path, "-o", "/dev/null", "-w", "%{http_code}", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bearer(key: str) -> tuple[str, str]:
    return "-H", f"Authorization: Bearer {key}"


def shown_key(world: World, gateway: dict) -> str:
    done = world.exec("sh", "-c", gateway["show_key"])
    assert done.returncode == 0, done.stderr
    return done.stdout


def balancers(world: World) -> list[dict]:
    return world.admin("/_sandbox/loadbalancers")


def test_without_what_it_needs_it_is_refused_before_anything_is_made(world: World) -> None:
    done = world.nemo("plan", "--expose", "public")
    assert done.returncode == 10
    assert "serve.allowed_cidrs has to say" in done.stderr and "openssl req -x509" in done.stderr, done.stderr
    assert world.writes() == []


def test_exposed_by_a_key_that_is_in_one_place(world: World) -> None:
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=nemo", "-addext", "subjectAltName=DNS:nemo.example.com"]
    assert world.exec(*request, "-keyout", "tls.key", "-out", "tls.crt").returncode == 0
    with (world.folder / "nemo.toml").open("a") as settings:
        settings.write(SETTINGS)
    plan = world.ok("plan", *EXPOSE)
    assert "Network Load Balancer" in plan.stdout, plan.stdout
    done = world.ok(*UP, *EXPOSE)
    gateway = result(done)["endpoint"]["gateway"]
    host, key = gateway["host"], shown_key(world, gateway)
    assert (gateway["to"], gateway["cidrs"], len(key)) == ("internal", ["10.9.0.0/16"], 64)
    [balancer] = balancers(world)
    assert (balancer["dns"], balancer["type"], balancer["public"]) == (host, "nlb", False)

    assert [status(world, host), status(world, host, *bearer("wrong")), status(world, host, *bearer(key))] == ["401", "401", "200"]
    assert status(world, host, *bearer(key), path="/metrics") == "404"
    model = result(done)["endpoint"]["model"]
    chat = {"model": model, "stream": True, "messages": [{"role": "user", "content": "What is 17 + 25? Answer with the number only."}]}
    streamed = curl(world, host, "/v1/chat/completions", "--no-buffer", *bearer(key), "-H", "Content-Type: application/json", "-d", json.dumps(chat))
    parts = [line.removeprefix("data: ") for line in streamed.stdout.splitlines() if line.startswith("data: ")]
    assert parts[-1] == "[DONE]" and len(parts) > 2, streamed.stdout + streamed.stderr
    assert "42" in "".join(choice["delta"].get("content") or "" for part in parts[:-1] for choice in json.loads(part)["choices"]), streamed.stdout
    assert curl(world, host, "/v1/models", *bearer(key), client=ELSEWHERE).returncode == 28, "another network hears nothing"

    nowhere(world, key, done.stdout + done.stderr)


def nowhere(world: World, key: str, said: str) -> None:
    """The key is in no object but its Secret, in no log, in no note, in nothing that was printed."""
    objects = world.exec("kubectl", "get", "pods,deployments,replicasets,services,configmaps,events", "--all-namespaces", "--output", "yaml", "--show-managed-fields")
    assert objects.returncode == 0 and "name: gateway" in objects.stdout
    logs = world.exec("kubectl", "logs", "--namespace", "nemo", "--selector", "app.kubernetes.io/name in (gateway, frontend)", "--tail", "-1")
    assert '"GET /v1/models" 200' in logs.stdout, logs.stdout + logs.stderr
    files: list[Path] = [path for folder in (world.folder / ".nemo", world.run_folder / "logs") for path in folder.rglob("*") if path.is_file()]
    files += [world.run_folder / "audit.log", world.run_folder / "journal.jsonl"]
    for where, text in [("printed", said), ("objects", objects.stdout), ("logs", logs.stdout), *((str(path), path.read_text(errors="replace")) for path in files)]:
        assert key not in text, where


def test_again_nothing_is_done_and_another_key_replaces_the_first(world: World) -> None:
    before = world.marks()
    first = result(world.ok(*UP, *EXPOSE))["endpoint"]["gateway"]
    assert world.writes(before) == []
    old = shown_key(world, first)
    refused = world.nemo(*UP, *EXPOSE, NEMO_API_KEY="short")
    assert refused.returncode == 11 and "20 to 3000 characters" in refused.stderr, refused.stderr
    changed = world.ok(*UP, *EXPOSE, NEMO_API_KEY=KEY)
    assert result(changed)["changed"] == ["serve"]
    assert shown_key(world, first) == KEY and KEY not in changed.stdout + changed.stderr
    assert [status(world, first["host"], *bearer(old)), status(world, first["host"], *bearer(KEY))] == ["401", "200"]
    before = world.marks()
    world.ok(*UP, *EXPOSE)  # without the variable the Secret's key is as good as any
    assert world.writes(before) == []


def test_exposed_no_more(world: World) -> None:
    done = world.ok(*UP)
    assert "gateway" not in result(done)["endpoint"]
    assert balancers(world) == []
    left = world.exec("kubectl", "get", "services,deployments,configmaps,secrets,poddisruptionbudgets", "--namespace", "nemo", "--output", "name")
    assert left.returncode == 0 and "gateway" not in left.stdout, left.stdout


def test_the_load_balancer_goes_before_the_network(world: World) -> None:
    world.ok(*UP, "--expose", "public")
    [balancer] = balancers(world)
    assert balancer["public"]
    done = world.ok("cleanup", "--yes")
    assert "nothing of" in done.stdout, done.stdout
    assert balancers(world) == []
