"""A chart that makes the same documents as `nemo render --all`: what differs in any two of its renderings is a value, the rest is text.

One template for each file of each topology and form, and of each list of kinds in it. It goes over the list of deployments and has no conditions but for fields that
some of them lack, so that helm has as little to do as a chart of these documents can give it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Scope = dict[str, Any]


@dataclass
class Template:
    """Lines of one node, to be indented by who holds them; `inline` if it stands behind its key."""

    lines: list[str]
    inline: bool


class Writer:
    """Makes templates, and writes into each deployment's scope what its values are."""

    def __init__(self) -> None:
        self.actions = 0

    def node(self, found: list[Any], scopes: list[Scope], name: str) -> Template:
        """`found`: the same node of every deployment."""
        if all(isinstance(one, dict) for one in found) and any(found):
            keys = list(dict.fromkeys(key for one in found for key in one))
            required = [key for key in keys if all(key in one for one in found)]
            if required:
                return self._mapping(required, [key for key in keys if key not in required], found, scopes)
        if all(isinstance(one, list) for one in found) and all(found):
            if len({len(one) for one in found}) == 1:
                items = [self.node([one[at] for one in found], scopes, name) for at in range(len(found[0]))]
                return Template([line for item in items for line in _item(item)], False)
            return self._range(found, scopes, name)
        return self._scalar(found, scopes, name)

    def _mapping(self, required: list[str], optional: list[str], found: list[Any], scopes: list[Scope]) -> Template:
        lines = []
        for key in required:
            lines += _entry(key, self.node([one[key] for one in found], scopes, key))
        for key in optional:
            have = [(one[key], scope) for one, scope in zip(found, scopes, strict=True) if key in one]
            inner: list[Scope] = [{} for _ in have]
            value = _free("with_" + _word(key), scopes)
            template = self.node([one for one, _ in have], inner, key)
            for (_, scope), made in zip(have, inner, strict=True):
                scope[value] = made or {"there": True}  # an empty one would count as not there
            self.actions += 1
            lines += [f"{{{{- with .{value} }}}}", *_entry(key, template), "{{- end }}"]
        return Template(lines, False)

    def _range(self, found: list[list[Any]], scopes: list[Scope], name: str) -> Template:
        """A list whose length is not the same in every deployment."""
        value = _free(_word(name), scopes)
        self.actions += 1
        items = [item for one in found for item in one]
        if not any(isinstance(item, (dict, list)) for item in items):
            for one, scope in zip(found, scopes, strict=True):
                scope[value] = one
            body = [f"- {{{{ {_shown('.', items)} }}}}"]
        else:
            inner: list[Scope] = [{} for _ in items]
            body = _item(self.node(items, inner, name))
            each = iter(inner)
            for one, scope in zip(found, scopes, strict=True):
                scope[value] = [next(each) for _ in one]
        return Template([f"{{{{- range .{value} }}}}", *body, "{{- end }}"], False)

    def _scalar(self, found: list[Any], scopes: list[Scope], name: str) -> Template:
        first = json.dumps(found[0], sort_keys=True)
        if all(json.dumps(one, sort_keys=True) == first for one in found):
            return Template([json.dumps(found[0], ensure_ascii=False).replace("{{", '{{ "{{" }}')], True)
        value = _free(_word(name), scopes)
        self.actions += 1
        for one, scope in zip(found, scopes, strict=True):
            scope[value] = one
        return Template([f"{{{{ {_shown('.' + value, found)} }}}}"], True)


def _shown(value: str, found: list[Any]) -> str:
    if all(isinstance(one, str) for one in found):
        return f"{value} | quote"
    if all(isinstance(one, int) and not isinstance(one, bool) for one in found):
        return f"{value} | int64"
    return f"{value} | toJson"


def _entry(key: str, template: Template) -> list[str]:
    key = json.dumps(key)
    if template.inline:
        return [f"{key}: {template.lines[0]}"]
    return [f"{key}:", *_indented(template.lines, "  ")]


def _item(template: Template) -> list[str]:
    if template.inline:
        return [f"- {template.lines[0]}"]
    if template.lines[0].startswith("- ") or template.lines[0].startswith("{{-"):  # a list in a list
        return ["-", *_indented(template.lines, "  ")]
    return ["- " + template.lines[0], *_indented(template.lines[1:], "  ")]


def _indented(lines: list[str], by: str) -> list[str]:
    return [line if line.startswith("{{-") else by + line for line in lines]


def _word(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _free(name: str, scopes: list[Scope]) -> str:
    taken = {key for scope in scopes for key in scope}
    return next(n for n in (f"{name}{at or ''}" for at in range(len(taken) + 1)) if n not in taken)


def _kinds(documents: list[Any]) -> tuple[str, ...]:
    return tuple(document["kind"] for document in documents)


def write(folder: Path, sets: dict[str, dict[str, list[Any]]], others: dict[str, dict[str, list[Any]]]) -> int:
    """The chart of `sets`: deployment (`MODEL-PRECISION/TOPOLOGY-FORM`) → file → documents. `others` are the same deployments with other settings: they
    only show what is a value. Gives back how many actions the templates have."""
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: bench\nversion: 1.0.0\n")
    values: dict[str, list[Scope]] = {}
    writer = Writer()
    # By the kinds, too: whose workers encode decides what a file of one topology and form holds.
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for name, files in sets.items():
        for file, documents in files.items():
            groups.setdefault((name.rpartition("/")[2], file, _kinds(documents)), []).append(name)
    for (shape, file, kinds), names in groups.items():
        seen = [sets[name][file] for name in names] + [others[name][file] for name in names if name in others and _kinds(others[name][file]) == kinds]
        scopes: list[Scope] = [{} for _ in seen]
        documents = [writer.node([one[at] for one in seen], scopes, "document") for at in range(len(seen[0]))]
        key = _word("_".join([shape, file.removesuffix(".yaml"), *kinds]))
        values[key] = scopes[: len(names)]
        body = "\n---\n".join("\n".join(document.lines) for document in documents)
        (folder / "templates" / f"{key}.yaml").write_text(f"{{{{- range .Values.{key} }}}}\n---\n{body}\n{{{{- end }}}}\n")
        writer.actions += 1
    (folder / "values.yaml").write_text(json.dumps(values))
    return writer.actions
