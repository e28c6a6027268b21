"""The figures that a GPU node keeps in its /sys: EFA's hardware counters as the kernel's driver names them, and, since GPUs have no
such place, a folder of the sandbox's own that its `nvidia-smi` reads. Programs in pods raise them (../../dynamo/engine/counters.py)."""

from __future__ import annotations

from pathlib import Path

# As in the kernel's drivers/infiniband/hw/efa; those that tell errors of single calls are left out.
EFA = (
    "tx_bytes", "tx_pkts", "rx_bytes", "rx_pkts", "rx_drops", "send_bytes", "send_wrs", "recv_bytes", "recv_wrs", "rdma_read_wrs", "rdma_read_bytes",
    "rdma_read_wr_err", "rdma_read_resp_bytes", "rdma_write_wrs", "rdma_write_bytes", "rdma_write_wr_err", "rdma_write_recv_bytes", "submitted_cmds",
    "completed_cmds", "keep_alive_rcvd", "lifespan",
)  # fmt: skip
FIRST_BUS = 85  # of the adapters' names, rdmap85s0 and so on: assumed


def lay(sys: Path, gpus: int, efa: int, product: str, memory_mib: int) -> None:
    for n in range(efa):
        port = sys / "class" / "infiniband" / f"rdmap{FIRST_BUS + n}s0" / "ports" / "1"
        (port / "hw_counters").mkdir(parents=True, exist_ok=True)
        (port / "state").write_text("4: ACTIVE\n")
        for name in EFA:
            (port / "hw_counters" / name).write_text("0\n")
    for n in range(gpus):
        gpu = sys / "sandbox" / "gpu" / str(n)
        gpu.mkdir(parents=True, exist_ok=True)
        for name, value in {"name": product, "memory.total": memory_mib, "memory.used": 0, "utilization.gpu": 0, "power.draw": 78}.items():
            (gpu / name).write_text(f"{value}\n")
