"""Hand-made records of sweeps, as the training side writes them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from xdesc_jax.config import TrainConfig
from xdesc_jax.sweep.results import append_result


def configured(fields: dict[str, Any]) -> TrainConfig:
    """The default configuration with some fields, dotted names, set."""
    config = TrainConfig()
    for name, value in fields.items():
        value = tuple(value) if isinstance(value, list) else value
        outer, _, inner = name.rpartition(".")
        if outer:
            value = dataclasses.replace(getattr(config, outer), **{inner: value})
        config = dataclasses.replace(config, **{outer or inner: value})
    return config


def record(fields: dict[str, Any], rank1: float | None = 0.5, status: str = "finished", **others: Any) -> dict:
    """The record of a member whose configuration is the default one but for `fields`."""
    config = configured(fields)
    figures = {
        "translation_error": {"brief->sift": 0.75, "sift->brief": 0.25},
        "bit_accuracy": {"sift->brief": 0.875},
        "rank1": {"brief->sift": 0.25, "sift->brief": 0.75},
        "joint_rank1": {"brief|sift": 0.5},
        "mean_rank1": rank1,
    }
    return {
        "member": config.hash,
        "status": status,
        "reason": None,
        "fields": fields,
        "config": dataclasses.asdict(config),
        "epoch": 5,
        "steps": 1000,
        "best_epoch": None if rank1 is None else 4,
        "mean_rank1": rank1,
        "figures": None if rank1 is None else figures,
        "history": []
        if rank1 is None
        else [{"epoch": e, "step": 200 * e, "mean_rank1": rank1 * e / 5} for e in (1, 5)],
        "group": "a1b2",
        "members_together": 16,
        "seconds": 12.5,
        "rows_per_second": 12345.0,
        "run": f"members/{config.hash}",
    } | others


def diverged(fields: dict[str, Any], **others: Any) -> dict:
    """The record of a member that diverged before its first epoch ended."""
    return record(fields, None, "diverged", reason="loss is nan at step 17", epoch=0, **others)


def sweep(workdir: Path, records: list[dict], shards: int = 1, **others: Any) -> Path:
    """A sweep's folder with these records, dealt to shards in turn."""
    fields = list({name: None for found in records for name in found["fields"]})
    described = {"hash": "0123456789ab", "config": {"search": "grid"}, "fields": fields} | others
    described.setdefault("data", {"path": "records", "hash": "ba9876543210"})
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "sweep.json").write_text(json.dumps(described))
    for i, found in enumerate(records):
        append_result(workdir / "results" / f"{i % shards}-of-{shards}.jsonl", found)
    return workdir
