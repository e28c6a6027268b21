import queue
from pathlib import Path

from measure.watch import StateWatch


def test_says_before_a_write_and_what_it_changed(tmp_path: Path) -> None:
    said: queue.Queue[object] = queue.Queue()
    state = tmp_path / ".nemo" / "nemo.toml"
    StateWatch(state, lambda: said.put("before"), said.put)

    def write(text: str) -> None:
        temporary = state.parent / ".nemo.Ab12.tmp"
        temporary.write_text(text)
        temporary.rename(state)

    write('[steps.network]\nstatus = "started"\n')
    assert [said.get(timeout=5), said.get(timeout=5)] == ["before", {"network": "started"}]
    write('[steps.network]\nstatus = "done"\n[steps.cluster]\nstatus = "started"\n')
    assert [said.get(timeout=5), said.get(timeout=5)] == ["before", {"network": "done", "cluster": "started"}]
