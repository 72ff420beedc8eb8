"""Translators as PyTorch modules, in a process of its own: the oracle of test_pytorch_translator.

python pytorch_reference.py make FOLDER       writes checkpoints, configurations, rows and what each layer gives
python pytorch_reference.py run PTH...        loads checkpoints strictly, writes what each layer gives to .npz
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from torch import nn

EMBEDDING = 11
# Widths other than the published ones, and of no symmetry, so that a transpose cannot pass.
ENTRIES = {
    "brief": {"descriptor_dim": 512, "hidden_dims": [29, 23], "l2_norm": False, "last_activation": "sigmoid"},
    "sift-kornia": {"descriptor_dim": 128, "hidden_dims": [31, 19], "l2_norm": True, "last_activation": "relu"},
    "hardnet": {"descriptor_dim": 128, "hidden_dims": [17, 13], "l2_norm": True, "last_activation": None},
    "sosnet": {"descriptor_dim": 128, "hidden_dims": [13], "l2_norm": True, "last_activation": None},
}
WHOLE = {"use_bn": True, "emb_dim": EMBEDDING, "emb_l2_norm": True, "emb_last_activation": None}


class Network(nn.Module):
    def __init__(self, widths, use_bn, activation, normalise):
        super().__init__()
        inner = []
        for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False)):
            inner += [nn.Linear(a, b)]
            if i < len(widths) - 2:
                inner += [nn.BatchNorm1d(b), nn.ReLU()] if use_bn else [nn.ReLU()]
        self.network = nn.Sequential(*inner)
        self.activation = {None: nn.Identity(), "relu": nn.ReLU(), "sigmoid": nn.Sigmoid()}[activation]
        self.normalise = normalise

    def steps(self, x):
        """What each Linear with its norm gives, before ReLU; then the network's result."""
        found = []
        for module in self.network:
            if isinstance(module, nn.ReLU):
                found.append(x)
            x = module(x)
        found.append(x)
        x = self.activation(x)
        return [*found, nn.functional.normalize(x, dim=1) if self.normalise else x]


def build(config):
    networks = {}
    for name, entry in config.items():
        if not isinstance(entry, dict):
            continue
        inner = [entry["descriptor_dim"], *entry["hidden_dims"], config["emb_dim"]]
        networks["encoders", name] = Network(
            inner, config["use_bn"], config["emb_last_activation"], config["emb_l2_norm"]
        )
        networks["decoders", name] = Network(inner[::-1], config["use_bn"], entry["last_activation"], entry["l2_norm"])
    return {key: network.eval() for key, network in networks.items()}


def randomise(networks):
    """Biases and norms far from those of a fresh network."""
    for network in networks.values():
        for module in network.network:
            if isinstance(module, nn.BatchNorm1d):
                nn.init.normal_(module.running_mean, 0.2, 0.3)
                nn.init.uniform_(module.running_var, 0.05, 2)
                nn.init.uniform_(module.weight, 0.3, 2)
                nn.init.normal_(module.bias, 0, 0.5)
                module.num_batches_tracked += 7
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.bias, 0, 0.5)


def checkpoint(networks, **args):
    content = {"args": argparse.Namespace(lr=1e-3, **args), "epoch_idx": 5}
    for role in ("encoders", "decoders"):
        content[role] = [(name, net.state_dict()) for (r, name), net in networks.items() if r == role]
    # As summed losses come out of numpy: a float64 and a float32.
    content["train_loss_history"] = [np.float64(0.75), np.float32(0.5)]
    # As Adam's state, whose import takes longer than everything else here.
    moments = {"step": 3, "exp_avg": torch.ones(4), "exp_avg_sq": torch.ones(4)}
    groups = [{"lr": 1e-3, "betas": (0.9, 0.999), "amsgrad": False, "params": [0]}]
    return content | {"optimizer": {"state": {0: moments}, "param_groups": groups}}


def rows(config):
    rng = np.random.default_rng(3)
    found = {}
    for name, entry in config.items():
        if isinstance(entry, dict):
            x = rng.normal(size=(37, entry["descriptor_dim"]))
            binary = entry["last_activation"] == "sigmoid"
            found[name] = (x > 0.3 if binary else x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    return found


def outputs(networks, inputs):
    """Encoders on rows, decoders on the embeddings of the same rows: '<role>/<name>/<step>'."""
    found = {}
    with torch.no_grad():
        for (role, name), network in networks.items():
            x = torch.from_numpy(inputs[name])
            if role == "decoders":
                x = networks["encoders", name].steps(x)[-1]
            found |= {f"{role}/{name}/{i}": y.numpy() for i, y in enumerate(network.steps(x))}
    return found


def make(folder):
    torch.manual_seed(0)
    for stem, use_bn in (("model", True), ("plain", False)):
        config = WHOLE | {"use_bn": use_bn} | ENTRIES
        networks = build(config)
        randomise(networks)
        content = checkpoint(networks, features=list(ENTRIES))
        torch.save(content, folder / f"{stem}.pth")
        (folder / f"{stem}.json").write_text(json.dumps(config))
        np.savez(folder / f"{stem}.npz", **rows(config), **outputs(networks, rows(config)))
    torch.save(content, folder / "old.pth", _use_new_zipfile_serialization=False)
    # As written beside numpy 1, whose module of the function that makes a float has another name.
    with zipfile.ZipFile(folder / "plain.pth") as new, zipfile.ZipFile(folder / "numpy1.pth", "w") as older:
        for name in new.namelist():
            older.writestr(name, new.read(name).replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    torch.save(content | {"args": Fraction(1, 3)}, folder / "class.pth")
    torch.save([torch.ones(2)], folder / "list.pth")
    torch.save(content | {"args": {1, 2}}, folder / "set.pth")
    (folder / "empty.pth").write_bytes(b"")
    (folder / "text.pth").write_text("hello, world\n" * 9)
    for kept in (200, 5000):
        (folder / f"cut{kept}.pth").write_bytes((folder / "model.pth").read_bytes()[:kept])


def run(paths):
    for path in paths:
        config = json.loads(path.with_name(path.name + ".config.json").read_text())
        networks = build(config)
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, weights_only=True)
        assert isinstance(content["args"], argparse.Namespace) and isinstance(content["epoch_idx"], int)
        for role in ("encoders", "decoders"):
            for name, state in content[role]:
                networks[role, name].load_state_dict(state, strict=True)
        np.savez(path.with_suffix(".npz"), **rows(config), **outputs(networks, rows(config)))


if __name__ == "__main__":
    _, action, *paths = sys.argv
    make(Path(paths[0])) if action == "make" else run([Path(p) for p in paths])
