"""The quadratic loss written plainly in PyTorch, as the peer of `train_step.py --peer`.

Four descriptors at the paper's widths, batch 1024: one product per ordered pair, decoders on all embeddings at once.
Steps of both are timed in turn and medians compared. Needs torch, which the package does not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np

from xdesc_jax.config import ModelConfig
from xdesc_jax.descriptors import get_spec, stored, unit_rows
from xdesc_jax.networks.mlp import build_networks
from xdesc_jax.train import parallel
from xdesc_jax.train.optimizer import Numbers
from xdesc_jax.train.translators.step import Hyper, Keys, create_state, read_inputs, train_step

NAMES = ("brief", "sift", "tfeat", "colmap-sift")
TFEAT_NORM = 9.0
HYPER = Hyper(Numbers(1e-3), 0.1, 1.0)
KEYS = Keys(jax.random.key(1), jax.random.key(2))


def make_batch(size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    batch = {"mask": np.ones(size, bool)}
    for name in NAMES:
        spec = get_spec(name)
        x = rng.normal(size=(size, spec.width)).astype(np.float32)
        batch[name] = stored(x > 0, spec) if spec.binary else stored(unit_rows(np.abs(x)), spec)
        if name == "tfeat":
            batch[name] = batch[name] * np.float32(TFEAT_NORM)
    return batch


def jax_step(batch: dict[str, np.ndarray], matmul: str) -> Callable[[], float]:
    """One pmapped step on one device; returns the loss."""
    specs = {name: get_spec(name) for name in NAMES}
    scales = dict.fromkeys(NAMES, 1.0) | {"tfeat": TFEAT_NORM}
    networks = build_networks(specs, ModelConfig(matmul=matmul), parallel.AXIS)  # type: ignore[arg-type]
    devices = jax.local_devices()[:1]
    step = partial(
        train_step,
        networks=networks,
        inputs_of=lambda b, key: read_inputs(b, specs, scales),
        variant="quadratic",
        distance="euclidean",
    )
    mapped, placed = parallel.pmapped_step(step, devices), parallel.split_batch(batch, devices)
    holder = [parallel.replicate(jax.jit(partial(create_state, networks))(jax.random.key(0)), devices)]

    def run() -> float:
        holder[0], metrics = mapped(holder[0], placed, KEYS, HYPER)
        jax.block_until_ready(holder[0])
        return float(metrics["loss"].total)

    return run


def torch_step(batch: dict[str, np.ndarray], autocast: bool) -> Callable[[], float]:
    """The same loss written plainly: one product per ordered pair, decoders on all embeddings at once."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    specs = {name: get_spec(name) for name in NAMES}
    scales = dict.fromkeys(NAMES, 1.0) | {"tfeat": TFEAT_NORM}
    rows = {n: torch.tensor(np.asarray(x)) for n, x in read_inputs(batch, specs, scales).items()}  # type: ignore[arg-type]
    size = len(batch["mask"])

    def mlp(widths: tuple[int, ...]) -> nn.Sequential:
        layers: list[nn.Module] = []
        for a, b in zip(widths[:-2], widths[1:-1], strict=True):
            layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))

    encoders = nn.ModuleList([mlp((s.width, *s.hidden, 128)) for s in specs.values()])
    decoders = nn.ModuleList([mlp((128, *s.hidden, s.width)) for s in specs.values()])
    optimizer = torch.optim.Adam([*encoders.parameters(), *decoders.parameters()], lr=1e-3)
    far = torch.diag(torch.full((size,), torch.inf))

    def loss() -> torch.Tensor:
        z = [F.normalize(encoder(rows[name]).float()) for encoder, name in zip(encoders, NAMES, strict=True)]
        translation = torch.zeros(())
        for decoder, name in zip(decoders, NAMES, strict=True):
            raw = decoder(torch.cat(z)).float()
            target = rows[name].repeat(len(NAMES), 1)
            if specs[name].binary:
                translation = translation + F.binary_cross_entropy_with_logits(raw, target)
                continue
            raw = F.relu(raw) if specs[name].output == "relu" else raw
            raw = F.normalize(raw) if specs[name].normalized else raw
            translation = translation + (raw - target).norm(dim=1).mean()
        matching = torch.zeros(())
        for a in z:
            for b in z:
                distance = torch.sqrt(torch.clamp(2 - 2 * (a @ b.T).float(), min=1e-12))
                negative = (distance + far).min(dim=1).values
                matching = matching + F.relu(1 + distance.diagonal() - negative).mean()
        return translation / len(NAMES) + 0.1 * matching / len(NAMES) ** 2

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            value = loss()
        value.backward()
        optimizer.step()
        return float(value.detach())

    return run


def compare(show: Callable[..., None], batch: int = 1024, repeats: int = 7) -> None:
    """Prints seconds a step, samples/s, and the ratio to PyTorch float32."""
    rows = make_batch(batch)
    steps = {
        "PyTorch float32": torch_step(rows, autocast=False),
        "PyTorch bfloat16 autocast": torch_step(rows, autocast=True),
        "xdesc_jax float32": jax_step(rows, "float32"),
        "xdesc_jax bfloat16": jax_step(rows, "bfloat16"),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()  # compile, warm up
        step()
    for _ in range(repeats):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - started)
    median = {name: statistics.median(values) for name, values in times.items()}
    peer = median["PyTorch float32"]
    amx = "amx_bf16" in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else False
    show(
        f"step of {len(NAMES)} descriptors, batch {batch}; amx_bf16 on this CPU: {amx}",
        ["implementation", "s/step", "samples/s", "ratio to PyTorch float32"],
        [[name, f"{t:.3f}", f"{batch / t:,.0f}", f"{peer / t:.2f}x"] for name, t in median.items()],
    )
