"""What the upstream CRDs refuse by CEL (read 2026-11-30, 1.4 to 1.5-dev; `scripts/test-real-crds` compares). The words are ours."""

from __future__ import annotations

from typing import Any, NamedTuple

BOTH = ("v1alpha1", "v1beta1")


class Rule(NamedTuple):
    versions: tuple[str, ...]
    path: str  # below a DGD's component, a DCD's spec, or (for `spec…`) in a DGD itself
    rule: str
    message: str
    at_creation_too: bool = False

    def schema(self) -> dict[str, Any]:
        return {"rule": self.rule, "message": self.message, **({"optionalOldSelf": True} if self.at_creation_too else {})}


GRAPH = [
    Rule(BOTH, "spec", "oldSelf.hasValue() || !has(self.restart)", "restart must not be set when the deployment is created", True),
    Rule(BOTH, "spec.experimental.kvTransferPolicy", "has(self.labelKey) != has(self.clusterTopologyName)", "exactly one of labelKey and clusterTopologyName is required"),
    Rule(BOTH, "spec.experimental.kvTransferPolicy", "self.enforcement != 'preferred' || has(self.preferredWeight)", "preferredWeight is required when enforcement is preferred"),
    Rule(BOTH, "spec.experimental.kvTransferPolicy", "self.enforcement == 'preferred' || !has(self.preferredWeight)", "preferredWeight is only allowed when enforcement is preferred"),
    Rule(BOTH, "spec.experimental.kvTransferPolicy.labelKey", "!self.contains('/') || self.indexOf('/') <= 253", "the prefix of a label key has at most 253 characters"),
    Rule(("v1beta1",), "spec.components", "self.filter(c, has(c.type) && c.type == 'epp').size() <= 1", "at most one component of type epp is allowed"),
    Rule(("v1beta1",), "spec.components", "self.all(a, self.exists_one(b, a.name.lowerAscii() == b.name.lowerAscii()))", "component names must be unique, ignoring case"),
    Rule(
        ("v1alpha1",), "spec.pvcs[]", "!has(self.create) || !self.create || (has(self.size) && has(self.storageClass) && has(self.volumeAccessMode))",
        "when create is true, size, storageClass and volumeAccessMode are required",
    ),
]  # fmt: skip

COMPONENT = [
    Rule(BOTH, "", "!has(self.minAvailable) || !has(self.replicas) || self.replicas == 0 || self.minAvailable <= self.replicas", "minAvailable must not be greater than replicas"),
    Rule(BOTH, "", "!has(oldSelf.minAvailable) || (has(self.minAvailable) && self.minAvailable == oldSelf.minAvailable)", "minAvailable cannot be changed once it is set"),
    Rule(("v1beta1",), "", "!has(self.eppConfig) || (has(self.type) && self.type == 'epp')", "eppConfig is only allowed on a component of type epp"),
    Rule(
        ("v1beta1",), "podTemplate.metadata.annotations",
        "!('nvidia.com/vllm-distributed-executor-backend' in self) || self['nvidia.com/vllm-distributed-executor-backend'].lowerAscii() in ['mp', 'ray']",
        "nvidia.com/vllm-distributed-executor-backend has to be mp or ray",
    ),
    Rule(("v1beta1",), "podTemplate.spec.containers[]", "self.name == 'main' || (has(self.image) && self.image != '')", "every container but main needs an image"),
    Rule(("v1beta1",), "podTemplate.spec.initContainers[]", "has(self.image) && self.image != ''", "an init container needs an image"),
    Rule(("v1beta1",), "eppConfig", "has(self.config) != has(self.configMapRef)", "exactly one of config and configMapRef is required"),
    Rule(
        ("v1alpha1",), "sharedMemory",
        "(has(self.disabled) && self.disabled) || (has(self.size) && self.size != 0 && self.size != '0')",
        "size must be greater than 0 unless disabled is true",
    ),
    Rule(("v1alpha1",), "checkpoint", "!has(self.job) || !has(self.checkpointRef)", "job and checkpointRef exclude each other"),
    Rule(("v1beta1",), "experimental.checkpoint", "!has(self.job) || !has(self.checkpointRef)", "job and checkpointRef exclude each other"),
    *(
        Rule((version,), path, rule, message)
        for version, path, intra, inter in (("v1alpha1", "gpuMemoryService", "intraPod", "interPod"), ("v1beta1", "experimental.gpuMemoryService", "IntraPod", "InterPod"))
        for rule, message in (
            (f"!has(self.extraClientContainers) || self.extraClientContainers.size() == 0 || self.mode == '{intra}'", f"extraClientContainers is only allowed when mode is {intra}"),
            (f"!has(self.extraClientPods) || self.extraClientPods.size() == 0 || self.mode == '{inter}'", f"extraClientPods is only allowed when mode is {inter}"),
            ("!has(self.extraClientPods) || self.extraClientPods.size() == 0", "extraClientPods is not supported yet"),
        )
    ),
]  # fmt: skip

COMPONENTS = {"v1alpha1": "spec.services.*", "v1beta1": "spec.components[]"}


def of(kind: str, version: str) -> list[tuple[str, Rule]]:
    """(path, rule) of one version of one kind."""
    if kind == "DynamoGraphDeployment":
        rules = [(rule.path, rule) for rule in GRAPH] + [(f"{COMPONENTS[version]}.{rule.path}".rstrip("."), rule) for rule in COMPONENT]
    elif kind == "DynamoComponentDeployment":
        rules = [(f"spec.{rule.path}".rstrip("."), rule) for rule in COMPONENT]
    else:
        rules = []
    return [(path, rule) for path, rule in rules if version in rule.versions]
