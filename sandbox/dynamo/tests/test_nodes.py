"""Engines over several nodes, on loopback: who waits for whom, and who ends with whom."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import MODEL
from serving import ask, free_port, serving, wait

from engine import rendezvous
from engine.rendezvous import Follower, Group, Leader


def place(rank: int, port: int, nodes: int = 2) -> Group:
    return Group(nodes, rank, "127.0.0.1", port, 8)


def args(**more: Any) -> SimpleNamespace:
    found = dict(tensor_parallel_size=8, pipeline_parallel_size=1, nnodes=1, node_rank=0, master_addr="a", master_port=1, data_parallel_size=1,
                 data_parallel_size_local=None, data_parallel_start_rank=None, data_parallel_address="b", data_parallel_rpc_port=2)  # fmt: skip
    return SimpleNamespace(**found | more)


def test_who_is_one_of_several() -> None:
    assert rendezvous.group(args()) is None
    assert rendezvous.group(args(pipeline_parallel_size=2, nnodes=2, node_rank=1)) == Group(2, 1, "a", 1, 8)
    assert rendezvous.group(args(tensor_parallel_size=4, data_parallel_size=4, data_parallel_size_local=2, data_parallel_start_rank=2)) == Group(2, 1, "b", 2, 8)


def test_the_leader_starts_when_all_have_come_and_tells_them_what_is_done() -> None:
    port, done, lost = free_port(), [], threading.Event()
    leader = Leader(place(0, port, 3))
    gathered = threading.Thread(target=leader.gather)
    gathered.start()
    followers = [Follower(place(1, port, 3))]
    gathered.join(0.3)
    assert gathered.is_alive(), "one is still missing"
    followers.append(Follower(place(2, port, 3)))
    for follower in followers:
        follower.start()
    gathered.join(5)
    leader.watch(lambda rank: lost.set())
    leader.tell(7)
    heard = threading.Thread(target=followers[0].follow, args=(done.append,))
    heard.start()
    followers[1].link.shutdown(2)
    assert lost.wait(5), "a node that goes is missed"
    for link in leader.followers.values():
        link.shutdown(2)
    heard.join(5)
    assert done == [7]


def test_who_does_not_come_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "patience", lambda: 0.3)
    with pytest.raises(rendezvous.DistStoreError, match="waiting for clients. 8/16 clients joined"):
        Leader(place(0, free_port())).gather()
    port = free_port()
    with pytest.raises(rendezvous.DistNetworkError, match=rf"timed out after 300ms while trying to connect to \(127.0.0.1, {port}\)"):
        Follower(place(1, port))


def test_two_nodes_serve_as_one_and_the_second_ends_with_the_first(model: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "two") as made:
        port = str(free_port())
        both = ["--pipeline-parallel-size", "2", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port, "--distributed-executor-backend", "mp"]
        leader = made.worker("leader", model, *both, "--node-rank", "0")
        made.frontend()
        wait("the leader waits", made.processes, made.log, 60, lambda: "waiting for 1 nodes" in made.log.read_text())
        wait("the frontend answers and lists nothing", made.processes, made.log, 60, lambda: ask(f"{made.url}/v1/models")["data"] == [])
        follower = made.worker("follower", model, *both, "--node-rank", "1", "--headless")
        made.listed()
        assert follower.poll() is None
        leader.kill()
        assert follower.wait(20) == 1
        assert "Connection was likely closed" in made.log.read_text()


def test_data_parallel_nodes_each_serve_and_stay_together(model: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "data") as made:
        port = str(free_port())
        both = ["--data-parallel-size", "2", "--data-parallel-size-local", "1", "--data-parallel-hybrid-lb", "--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", port]
        first = made.worker("first", model, *both, "--data-parallel-start-rank", "0")
        second = made.worker("second", model, *both, "--data-parallel-start-rank", "1")
        made.frontend()
        wait("both are registered", made.processes, made.log, 60, lambda: made.log.read_text().count("is registered") == 2)
        made.listed()
        ask(f"{made.url}/v1/completions", {"model": MODEL, "prompt": "The capital of France is", "max_tokens": 8})
        assert first.poll() is None and second.poll() is None
        first.kill()
        assert second.wait(20) == 1


def test_an_encoder_alone_is_no_worker_of_dynamo(model: Path, tmp_path: Path) -> None:
    """Dynamo's own encode worker is another (`--disaggregation-mode encode`), and vLLM's encoders are `vllm serve`."""
    with serving(tmp_path / "encode") as made:
        alone = made.worker("encode", model, "--mm-encoder-only")
        assert alone.wait(60) != 0
        assert "--mm-encoder-only" in made.log.read_text() and "is registered" not in made.log.read_text()
