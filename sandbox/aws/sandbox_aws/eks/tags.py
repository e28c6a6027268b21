"""EKS's tag calls on everything that has tags; moto knows them for clusters only."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.eks.exceptions import ResourceNotFoundException

from .base import Base


class TagCalls(Base):
    def _tags_of(self, arn: str) -> dict[str, str]:
        """The resource's own tags, to read and to change."""
        for cluster in self.eks_backend.clusters.values():
            holders: list[tuple[str, Any]] = [(cluster.arn, cluster), *((group.arn, group) for group in cluster.nodegroups.values())]
            for known, holder in holders:
                if known == arn:
                    holder.tags = holder.tags or {}
                    return holder.tags  # type: ignore[no-any-return]
            stores = cluster.__dict__
            rows = [(row["addonArn"], row) for row in stores.get("addons", {}).values()]
            rows += [(row["accessEntryArn"], row) for row in stores.get("entries", {}).values()]
            rows += [(row["associationArn"], row) for row in stores.get("identities", {}).values()]
            for known, row in rows:
                if known == arn:
                    return row.setdefault("tags", {})  # type: ignore[no-any-return]
        raise ResourceNotFoundException(message=f"Resource not found: {arn}")

    def tag_resource(self) -> EmptyResult:
        self._tags_of(self._extract_arn_from_path()).update(self._get_param("tags") or {})
        return EmptyResult()

    def untag_resource(self) -> EmptyResult:
        tags = self._tags_of(self._extract_arn_from_path())
        for key in self._get_param("tagKeys") or []:
            tags.pop(key, None)
        return EmptyResult()

    def list_tags_for_resource(self) -> ActionResult:
        return ActionResult({"tags": self._tags_of(self._extract_arn_from_path())})
