"""vLLM's own metrics, as far as something here raises them. Dynamo shows them at its system port's /metrics."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LABELS = ("model_name", "engine")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5)
SIZES = tuple(2**power for power in range(11, 35, 2))
DESCRIPTORS = (10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000)


class Engine:
    def __init__(self, model: str, registry: CollectorRegistry) -> None:
        self.registry, self.values = registry, (model, "0")
        self.running = self.labelled(Gauge("vllm:num_requests_running", "Number of requests in model execution batches.", LABELS, registry=registry))
        self.prompt = self.labelled(Counter("vllm:prompt_tokens", "Number of prefill tokens processed.", LABELS, registry=registry))
        self.success = Counter("vllm:request_success", "Count of successfully processed requests.", (*LABELS, "finished_reason"), registry=registry)
        self.generated = self.labelled(Counter("vllm:generation_tokens", "Number of generation tokens processed.", LABELS, registry=registry))

    def finished(self, reason: str) -> None:
        self.success.labels(*self.values, reason).inc()

    def labelled(self, metric: Any) -> Any:
        return metric.labels(*self.values)


class Nixl:
    """There as soon as the connector is, with zeros."""

    def __init__(self, engine: Engine) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Any:
            return engine.labelled(Histogram(f"vllm:nixl_{name}", text, LABELS, buckets=buckets, registry=engine.registry))

        def counter(name: str, text: str) -> Any:
            return engine.labelled(Counter(f"vllm:nixl_{name}", text, LABELS, registry=engine.registry))

        self.xfer_time = histogram("xfer_time_seconds", "Histogram of transfer duration for NIXL KV Cache transfers.", SECONDS)
        self.post_time = histogram("post_time_seconds", "Histogram of transfer post time for NIXL KV Cache transfers.", SECONDS)
        self.bytes = histogram("bytes_transferred", "Histogram of bytes transferred per NIXL KV Cache transfers.", SIZES)
        self.descriptors = histogram("num_descriptors", "Histogram of number of descriptors per NIXL KV Cache transfers.", DESCRIPTORS)
        self.failed = counter("num_failed_transfers", "Number of failed NIXL KV Cache transfers.")
        self.unheard = counter("num_failed_notifications", "Number of failed NIXL KV Cache notifications.")
        self.expired = counter("num_kv_expired_reqs", "Number of requests that had their KV expire.")

    def moved(self, size: int, seconds: float, descriptors: int) -> None:
        self.bytes.observe(size)
        self.xfer_time.observe(seconds)
        self.post_time.observe(seconds / 100)
        self.descriptors.observe(descriptors)
