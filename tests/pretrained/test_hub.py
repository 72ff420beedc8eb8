"""Translators of the Hugging Face hub: 'user/model' wherever a model is given. Nothing here uses a network."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from tests.pretrained.conftest import make_bundle
from xdesc_jax import Translator, cli, pretrained
from xdesc_jax.descriptors import unit_rows
from xdesc_jax.files import dry_run
from xdesc_jax.pretrained import hub

ROWS = unit_rows(np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32))
ERRORS = {
    "RevisionNotFoundError": OSError, "RepositoryNotFoundError": OSError, "EntryNotFoundError": Exception,
    "HFValidationError": ValueError,
}  # fmt: skip


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """huggingface_hub, of which one repository can be downloaded, and what is asked of it."""
    file = tmp_path / "downloaded.safetensors"
    make_bundle().save(file)
    errors = types.ModuleType("huggingface_hub.errors")
    for name, base in ERRORS.items():
        setattr(errors, name, type(name, (base,), {}))
    errors.GatedRepoError = type("GatedRepoError", (errors.RepositoryNotFoundError,), {})
    errors.LocalEntryNotFoundError = type("LocalEntryNotFoundError", (FileNotFoundError, errors.EntryNotFoundError), {})
    module, asked = types.ModuleType("huggingface_hub"), []

    def download(repository, file_name, *, revision, local_files_only, library_name):
        asked.append((repository, file_name, revision, local_files_only))
        if (error := module.fails) is not None:
            raise error
        if local_files_only:
            raise errors.LocalEntryNotFoundError("not cached")
        return str(file)

    module.hf_hub_download, module.errors, module.fails, module.asked = download, errors, None, asked
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    monkeypatch.chdir(tmp_path)
    return module


def test_a_repository_gives_its_translator(shipped, stand_in):
    np.testing.assert_allclose(
        Translator.from_pretrained("some-one/two.way_1").translate(ROWS, "ones", "twos"), ROWS[:, ::-1], atol=1e-6
    )
    Translator.from_pretrained("someone/model@v1.0")
    assert stand_in.asked == [
        ("some-one/two.way_1", "translator.safetensors", None, False),
        ("someone/model", "translator.safetensors", "v1.0", False),
    ]


def test_shipped_names_come_first_and_ask_no_hub(shipped, stand_in):
    Translator.from_pretrained("colmap")
    assert pretrained.resolve("colmap") == shipped / "colmap.safetensors"
    assert stand_in.asked == []


def test_the_command_line_takes_the_same_name(shipped, stand_in, tmp_path, capsys):
    np.save(tmp_path / "in.npy", ROWS)
    words = ["translate", "in.npy", "out.npy", "--descriptor", "ones", "--target", "twos", "--model", "someone/model"]
    assert cli.main(words) == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), ROWS[:, ::-1], atol=1e-6)
    assert "model: someone/model" in capsys.readouterr().err
    assert cli.main(["inspect", "someone/model"]) == 0
    assert "ones" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["models/own.safetensors", "a/b/c", "name", "/a/b", "a/", "out/in.h5", "../b"])
def test_paths_are_no_repositories(text):
    assert not hub.is_name(text)


def test_a_path_whose_folder_exists_is_no_repository(shipped, stand_in, tmp_path):
    (tmp_path / "runs").mkdir()
    with pytest.raises(FileNotFoundError, match="runs/model: no such model file, nor one that ships"):
        pretrained.resolve("runs/model")
    assert stand_in.asked == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("RepositoryNotFoundError", "a/b@v2: no such file, and the hub has no such repository"),
        ("GatedRepoError", "a/b@v2: the hub asks for access"),
        ("RevisionNotFoundError", "a/b@v2: the repository has no revision 'v2'"),
        ("EntryNotFoundError", "a/b@v2: the repository holds no translator.safetensors"),
        (
            "LocalEntryNotFoundError",
            "a/b@v2: .* is not in the hub's cache, and there is no network",
        ),
        ("HFValidationError", "'a/b@v2': the hub takes it for no repository"),
    ],
)
def test_what_the_hub_refuses_is_told(stand_in, error, message):
    stand_in.fails = getattr(stand_in.errors, error)("told at length\nby the hub")
    with pytest.raises((OSError, ValueError), match=message):
        hub.fetch("a/b@v2")


def test_another_failure_names_the_model_and_the_reason(stand_in):
    stand_in.fails = OSError("disk is full\nmore")
    with pytest.raises(OSError, match=r"^a/b: could not be had from the hub \(disk is full\)$"):
        hub.fetch("a/b")


def test_a_dry_run_downloads_nothing(stand_in):
    with dry_run.planning():
        with pytest.raises(FileNotFoundError, match="a/b: .* a dry run downloads nothing"):
            hub.fetch("a/b")
    assert stand_in.asked[-1][-1] is True


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(FileNotFoundError, match=r"a/b: no such file; .* pip install 'xdesc-jax\[hub\]'"):
        hub.fetch("a/b")


def test_the_cache_serves_without_a_network(monkeypatch, tmp_path):
    """With huggingface_hub itself, whose cache holds one snapshot."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--someone--model"
    (repository / "snapshots" / commit).mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    make_bundle().save(repository / "snapshots" / commit / hub.FILE)
    assert Translator.from_pretrained("someone/model").names == ["ones", "twos"]
    assert Path(hub.fetch("someone/model")).parent.name == commit
    with pytest.raises(FileNotFoundError, match="someone/other: .* is not in the hub's cache, and there is no network"):
        hub.fetch("someone/other")
