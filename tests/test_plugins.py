"""What goes wrong in users' own modules is told with their names."""

from __future__ import annotations

import os

import pytest

from xdesc_jax import cli, plugins


@pytest.fixture(autouse=True)
def loaded_anew():
    plugins.load_plugins.cache_clear()
    yield
    plugins.load_plugins.cache_clear()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def (", r"mine.py: cannot be imported \(SyntaxError: invalid syntax"),
        ("import no_such_package", r"mine.py: cannot be imported \(ModuleNotFoundError: No module named"),
        ("no_such_name", r"mine.py: cannot be imported \(NameError: name 'no_such_name'"),
        (
            "from xdesc_jax.descriptors import DescriptorSpec, register; register(DescriptorSpec('brief', 3))",
            r"mine.py: cannot be imported \(ValueError: descriptor 'brief' is registered as",
        ),
    ],
)
def test_a_plugin_that_fails_is_named(tmp_path, monkeypatch, source, message):
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.setenv(plugins.PLUGINS, os.pathsep.join(["json", str(tmp_path / "mine.py")]))
    with pytest.raises(ValueError, match=message):
        plugins.load_plugins()


def test_an_installed_package_that_fails_is_named_and_not_called_a_lack_of_this_one(tmp_path, monkeypatch, capsys):
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[xdesc_jax.descriptors]\ntheirs = no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "photos").mkdir()
    assert cli.main(["extract", str(tmp_path / "photos"), str(tmp_path / "out"), "--descriptors", "brief"]) == 2
    error = capsys.readouterr().err
    assert "plugin no_such_module of the package theirs: cannot be imported" in error and "pip install" not in error
