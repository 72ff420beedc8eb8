"""The training step beside the same loss written plainly in PyTorch, on the same cores.

    python benchmarks/pytorch_step.py [--batch 1024] [--rounds 4] [--steps 5] [--bfloat16]

Four descriptors at the paper's widths, quadratic loss: in PyTorch one product per ordered pair, decoders on all
embeddings at once, as in the authors' code. Each is timed in a process of its own, in turn, `--rounds` times; a round's
time is that of its fastest step. Target: float32 at most .9 of PyTorch's time, bfloat16 chosen where it is faster
(`--model.matmul auto`). Needs torch, which the package does not.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # runs without being installed

from xdesc_jax.descriptors import get_spec, stored, unit_rows

NAMES = ("brief", "sift", "tfeat", "colmap-sift")
TFEAT_NORM = 9.0
SCALES = dict.fromkeys(NAMES, 1.0) | {"tfeat": TFEAT_NORM}
PEER = "PyTorch float32"


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


def jax_step(size: int, matmul: str) -> Callable[[], float]:
    """One pmapped step on one device; returns the loss."""
    import jax

    from xdesc_jax.config import ModelConfig
    from xdesc_jax.networks.mlp import build_networks
    from xdesc_jax.train import parallel
    from xdesc_jax.train.optimizer import Numbers
    from xdesc_jax.train.translators.step import Hyper, Keys, create_state, read_inputs, train_step

    specs = {name: get_spec(name) for name in NAMES}
    networks = build_networks(specs, ModelConfig(matmul=matmul), parallel.AXIS)  # type: ignore[arg-type]
    devices = jax.local_devices()[:1]
    step = partial(
        train_step,
        networks=networks,
        inputs_of=lambda b, key: read_inputs(b, specs, SCALES),
        variant="quadratic",
        distance="euclidean",
    )
    mapped = parallel.pmapped_step(step, devices, donate=True)
    placed = parallel.split_batch(make_batch(size), devices)
    holder = [parallel.replicate(jax.jit(partial(create_state, networks))(jax.random.key(0)), devices)]
    keys, hyper = Keys(jax.random.key(1), jax.random.key(2)), Hyper(Numbers(1e-3), 0.1, 1.0)

    def run() -> float:
        holder[0], metrics = mapped(holder[0], placed, keys, hyper)
        jax.block_until_ready(holder[0])
        return float(metrics["loss"].total)

    return run


def torch_step(size: int, autocast: bool) -> Callable[[], float]:
    """The same loss written plainly: one product per ordered pair, decoders on all embeddings at once."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    specs = {name: get_spec(name) for name in NAMES}
    rows = {name: torch.tensor(x) for name, x in canonical_rows(make_batch(size)).items()}

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


def canonical_rows(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What networks take, without jax in the process of torch."""
    found = {}
    for name in NAMES:
        spec, x = get_spec(name), batch[name]
        if spec.binary:
            found[name] = np.unpackbits(x, axis=1, bitorder="little")[:, : spec.width].astype(np.float32)
        else:
            x = x.astype(np.float32)
            found[name] = unit_rows(x) if spec.normalized else x / np.float32(SCALES[name])
    return found


STEPS: dict[str, Callable[[int], Callable[[], float]]] = {
    PEER: partial(torch_step, autocast=False),
    "xdesc_jax float32": partial(jax_step, matmul="float32"),
    "PyTorch bfloat16 autocast": partial(torch_step, autocast=True),
    "xdesc_jax bfloat16": partial(jax_step, matmul="bfloat16"),
}


def child(name: str, size: int, steps: int) -> None:
    """Prints the seconds of steps, the first two left out, and the loss of the first."""
    step, seconds = STEPS[name](size), []
    first = step()
    for _ in range(steps + 1):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds[1:], "loss": first}))


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5, help="of a process")
    parser.add_argument("--bfloat16", action="store_true", help="time both with bfloat16 operands, too")
    given = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        parser.error("needs torch, which is not installed: pip install torch")
    names = list(STEPS) if given.bfloat16 else list(STEPS)[:2]
    fastest: dict[str, list[float]] = {name: [] for name in names}
    losses = {}
    for _ in range(given.rounds):
        for name in names:
            words = [sys.executable, __file__, "--child", name, str(given.batch), str(given.steps)]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            fastest[name].append(min(found["seconds"]))
            losses[name] = found["loss"]
    cpu = Path("/proc/cpuinfo")
    amx = "amx_bf16" in cpu.read_text() if cpu.exists() else False
    print(f"step of {len(NAMES)} descriptors, batch {given.batch}, {given.rounds} rounds; amx_bf16 on this CPU: {amx}")
    peer = statistics.median(fastest[PEER])
    for name, seconds in fastest.items():
        middle, low, high = statistics.median(seconds), min(seconds), max(seconds)
        print(
            f"  {name:26} {1e3 * middle:5.0f} ms ({1e3 * low:.0f} to {1e3 * high:.0f}), {given.batch / middle:6,.0f} "
            f"samples/s, {middle / peer:.2f} of {PEER}; first loss {losses[name]:.3f}"
        )


if __name__ == "__main__":
    main()
