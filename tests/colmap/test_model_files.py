"""Model files that are cut short or go on too long, of every kind of entry."""

import shutil

import pytest

from xdesc_jax import cli
from xdesc_jax.colmap.bindings.api import open_model, pycolmap, write_model
from xdesc_jax.colmap.model_files import check_model_files

FILES = ["cameras.bin", "rigs.bin", "frames.bin", "images.bin", "points3D.bin"]


@pytest.fixture
def model(tmp_path):
    """Two rigs of three cameras with frames, whose images have a track each."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig, options.num_points3D = 2, 3, 2, 11
    (tmp_path / "model").mkdir()
    pycolmap.synthesize_dataset(options).write(tmp_path / "model")
    return tmp_path / "model"


def test_the_folder_around_a_model_leads_to_it(model, tmp_path, capsys):
    sparse = tmp_path / "colmap" / "sparse"
    for name in ("10", "2", "0"):
        shutil.copytree(model, sparse / name)
    for given in (sparse, tmp_path / "colmap"):
        told = rf"^{given}: holds no COLMAP model; did you mean {sparse / '0'}\?$"
        with pytest.raises(FileNotFoundError, match=told):
            open_model(given)
        assert cli.main(["inspect", str(given)]) == 2
        assert f"holds no COLMAP model; did you mean {sparse / '0'}?" in capsys.readouterr().err


@pytest.mark.parametrize("file", FILES)
def test_every_length_but_the_right_one_is_refused_by_name(model, file):
    check_model_files(model)
    data = (model / file).read_bytes()
    for length in (0, 5, 8, len(data) // 3, len(data) - 1):
        (model / file).write_bytes(data[:length])
        with pytest.raises(ValueError, match=rf"{file}: cut short or damaged, its {length} bytes"):
            check_model_files(model)
    (model / file).write_bytes(data + b"\0")
    with pytest.raises(ValueError, match=f"{file}: {len(data) + 1} bytes, expected {len(data)}"):
        check_model_files(model)


def test_a_camera_model_that_is_none_is_refused(model):
    data = bytearray((model / "cameras.bin").read_bytes())
    data[12:16] = (99).to_bytes(4, "little")
    (model / "cameras.bin").write_bytes(data)
    with pytest.raises(ValueError, match="camera model 99"):
        check_model_files(model)


def test_text_models_are_left_to_colmap(model, tmp_path):
    (tmp_path / "text").mkdir()
    open_model(model).write_text(tmp_path / "text")
    check_model_files(tmp_path / "text")
    assert open_model(tmp_path / "text").num_points3D() == 11


def test_stages_say_which_file_is_cut_short(model, tmp_path, capsys):
    file = model / "points3D.bin"
    file.write_bytes(file.read_bytes()[:100])
    words = ["evaluate", "sfm", model, "--reference", model, "--out", tmp_path / "out"]
    assert cli.main([str(word) for word in words]) == 2
    assert f"{file}: cut short" in capsys.readouterr().err


def test_a_model_that_was_not_written_whole_is_an_error(model, tmp_path):
    class OnAFullDisk:
        def write(self, folder):
            (folder / "points3D.bin").write_bytes((model / "points3D.bin").read_bytes()[:100])

    with pytest.raises(OSError, match=r"could not be written whole, is the disk full\? .*points3D.bin"):
        write_model(OnAFullDisk(), tmp_path)
