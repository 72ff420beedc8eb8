"""Reading photos: which files are found, and which pixels they give."""

import os
import unicodedata
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

from xdesc_jax.features.images import UnreadablePhoto, list_photos, read_exif, read_gray, read_rgb

RGB = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]], [[10, 20, 30], [200, 100, 50], [255, 255, 255]]], np.uint8)
# rint(0.299 R + 0.587 G + 0.114 B)
GRAY = np.array([[76, 150, 29], [18, 124, 255]], np.uint8)


def save(path, array, mode=None, **options):
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path, **options)
    return path


def test_gray_is_itu_r_601(tmp_path):
    np.testing.assert_array_equal(read_gray(save(tmp_path / "a.png", RGB)), GRAY)


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
def test_exif_is_read_with_the_size_of_the_files_own_pixels(tmp_path, suffix):
    exif = Image.Exif()
    exif[0x0112] = 6
    if suffix == "jpg":
        exif.get_ifd(0x8825).update({1: "S", 2: (33.0, 51.0, 24.0)})
    path = save(tmp_path / f"a.{suffix}", np.zeros((20, 31, 3), np.uint8), exif=exif)
    tags, size = read_exif(path)
    assert tags[0x0112] == 6 and size == (31, 20)
    expected = {1: "S", 2: (33, 51, 24)} if suffix == "jpg" else {}
    assert read_exif(path, 0x8825) == (expected, size)


def test_exif_of_what_is_no_photo_says_nothing(tmp_path, monkeypatch):
    nothing = ({}, (0, 0))
    (tmp_path / "text.jpg").write_text("no photo")
    (tmp_path / "empty.jpg").write_bytes(b"")
    assert all(read_exif(tmp_path / name) == nothing for name in ("text.jpg", "empty.jpg", "none.jpg", "."))
    assert read_exif(save(tmp_path / "bare.png", np.zeros((4, 5), np.uint8))) == ({}, (5, 4))
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "a.jpg", np.zeros((20, 31, 3), np.uint8), exif=exif)
    cut = path.read_bytes()
    path.write_bytes(cut.replace(b"II*\0", b"XX*\0").replace(b"MM\0*", b"XX\0*"))
    assert path.read_bytes() != cut and read_exif(path)[0] == {}
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)  # beyond twice as many Pillow refuses to open a file
    assert read_exif(path) == nothing


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_a_tiff_is_not_applied(tmp_path, orientation, compression):
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = np.arange(600, dtype=np.uint16).reshape(20, 30)
    path = save(tmp_path / "a.tif", pixels.astype(np.uint8), exif=exif, compression=compression)
    np.testing.assert_array_equal(read_gray(path), pixels.astype(np.uint8))
    path = save(tmp_path / "16.tif", pixels * 109, exif=exif, compression=compression)
    np.testing.assert_array_equal(read_gray(path), np.rint(pixels * 109 / 257).astype(np.uint8))


def test_exif_orientation_is_not_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to show
    path = save(tmp_path / "a.jpg", np.zeros((20, 31, 3), np.uint8), exif=exif)
    assert read_gray(path).shape == (20, 31)
    assert read_rgb(path).shape == (20, 31, 3)


def test_16_bit_gray_is_scaled_not_clipped(tmp_path):
    pixels = np.array([[0, 257, 25700], [32768, 65278, 65535]], np.uint16)
    path = save(tmp_path / "a.png", pixels)
    np.testing.assert_array_equal(read_gray(path), [[0, 1, 100], [128, 254, 255]])
    np.testing.assert_array_equal(read_rgb(path)[..., 2], [[0, 1, 100], [128, 254, 255]])


def test_16_bit_colour_is_scaled_not_clipped(tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), RGB[..., ::-1].astype(np.uint16) * 257)
    np.testing.assert_array_equal(read_rgb(tmp_path / "a.png"), RGB)


def test_alpha_is_dropped(tmp_path):
    alpha = np.concatenate([RGB, np.full((2, 3, 1), 7, np.uint8)], axis=2)
    np.testing.assert_array_equal(read_rgb(save(tmp_path / "a.png", alpha)), RGB)
    gray_alpha = np.stack([GRAY, np.zeros_like(GRAY)], axis=2)
    np.testing.assert_array_equal(read_gray(save(tmp_path / "b.png", gray_alpha)), GRAY)


@pytest.mark.parametrize("transparency", [None, 0, bytes([0, 128, 255])])
def test_palette_is_looked_up(tmp_path, transparency):
    image = Image.fromarray(RGB).convert("P", palette=Image.Palette.ADAPTIVE)
    image.save(tmp_path / "a.png", **({} if transparency is None else {"transparency": transparency}))
    np.testing.assert_array_equal(read_rgb(tmp_path / "a.png"), RGB)


def test_cmyk_is_converted(tmp_path):
    cmyk = np.zeros((9, 7, 4), np.uint8)
    cmyk[..., 0] = 255  # cyan ink alone: no red
    path = tmp_path / "a.tif"
    Image.fromarray(cmyk, "CMYK").save(path)
    np.testing.assert_array_equal(read_rgb(path)[4, 3], [0, 255, 255])


def test_1_bit_becomes_black_and_white(tmp_path):
    path = save(tmp_path / "a.png", np.array([[True, False, True]]))
    np.testing.assert_array_equal(read_gray(path), [[255, 0, 255]])


def test_float_pixels_are_refused(tmp_path):
    path = save(tmp_path / "a.tif", np.ones((3, 4), np.float32))
    with pytest.raises(UnreadablePhoto, match="a.tif: pixels are floats"):
        read_gray(path)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_non_ascii_paths_are_found_and_read(tmp_path, form):
    name = unicodedata.normalize(form, "donn\u00e9es/\u00e9 \u65e5\u672c.jpg")
    (tmp_path / name).parent.mkdir()
    save(tmp_path / name, RGB)
    assert list_photos(tmp_path) == [name]
    assert read_gray(tmp_path / name).shape == (2, 3)


@pytest.mark.parametrize("content", [b"", b"no photo at all", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n\0\0"])
def test_unreadable_file_is_named(tmp_path, content):
    (tmp_path / "broken.jpg").write_bytes(content)
    with pytest.raises(UnreadablePhoto, match="broken.jpg"):
        read_gray(tmp_path / "broken.jpg")


def test_photo_cut_short_is_refused(tmp_path):
    path = save(tmp_path / "a.jpg", np.random.default_rng(0).integers(0, 255, (64, 65, 3)).astype(np.uint8))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(UnreadablePhoto, match="a.jpg"):
        read_rgb(path)


def _png_with_a_huge_text() -> bytes:
    """A PNG whose compressed text chunk expands to more than Pillow takes."""
    body = b"zTXtkey\0\0" + zlib.compress(bytes(2**21))
    chunk = (len(body) - 4).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    header = b"IHDR" + (1).to_bytes(4, "big") * 2 + b"\x08\0\0\0\0"
    start = b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + header + zlib.crc32(header).to_bytes(4, "big")
    return start + chunk


@pytest.mark.parametrize(
    "content", [_png_with_a_huge_text(), b"P6\n3 x2\n255\n" + bytes(18), b"P5\n3 2\n0\n" + bytes(6)]
)
def test_value_error_of_the_decoder_names_the_file(tmp_path, content):
    (tmp_path / "broken.png").write_bytes(content)
    with pytest.raises(UnreadablePhoto, match="broken.png: not a photo that can be read"):
        read_rgb(tmp_path / "broken.png")


def test_photo_longer_than_patches_can_be_cut_from_is_refused(tmp_path):
    assert read_gray(save(tmp_path / "a.png", np.zeros((32766, 2), np.uint8))).shape == (32766, 2)
    path = save(tmp_path / "b.png", np.zeros((32767, 2), np.uint8))
    with pytest.raises(UnreadablePhoto, match="b.png: the photo has 2 x 32767 px, at most 32766 a side"):
        read_gray(path)


def test_name_that_is_not_utf8_is_left_out_with_its_bytes(tmp_path, caplog):
    save(tmp_path / "a.png", RGB)
    save(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"), RGB)
    skipped = {}
    assert list_photos(tmp_path, skipped=skipped) == ["a.png"]
    assert list(skipped) == [repr(b"\xff.png")] and "is not UTF-8" in skipped[repr(b"\xff.png")]
    assert r"\xff.png" in caplog.text
    with pytest.raises(UnreadablePhoto, match=r"\\xff.png"):
        list_photos(tmp_path, strict=True)
    (tmp_path / "a.png").unlink()
    with pytest.raises(ValueError, match=r"no photo has a name in UTF-8, first of 1: b'\\xff.png'"):
        list_photos(tmp_path)


def test_photos_are_listed_by_relative_name(tmp_path):
    for name in ("b.JPG", "a/z.png", "a/B/c d.Tiff", "a.txt", ".hidden.png", ".parts/x.png", "a/png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list_photos(tmp_path) == ["a/B/c d.Tiff", "a/z.png", "b.JPG"]


def test_link_to_a_parent_folder_is_followed_once(tmp_path):
    (tmp_path / "a.png").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert list_photos(tmp_path) == ["a.png"]


def test_folder_without_photos_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        list_photos(tmp_path / "absent")
    with pytest.raises(ValueError, match="no photo found"):
        list_photos(tmp_path)
    (tmp_path / "a.png").touch()
    with pytest.raises(ValueError, match="found a file"):
        list_photos(tmp_path / "a.png")
