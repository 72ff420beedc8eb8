"""Translating the descriptors inside a COLMAP database.

In: a database of COLMAP 3 or 4, whose images may hold different descriptors, and a translator. Out: a new
database with the descriptors of one target and all else kept; each image says what it holds and what that was
translated from. Images stream through one by one, and a killed run goes on where it was. Runs on the base
install. `translate` is the stage around it.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path

from xdesc_jax import console
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.frames import of_colmap
from xdesc_jax.networks.views import VIEW, View
from xdesc_jax.translation import ratios as ratio_keys
from xdesc_jax.translation.ratios import RATIOS, again, trace
from xdesc_jax.translation.stream import Stream
from xdesc_jax.translation.translator import Translator

COMMIT_SECONDS = 5.0  # what a killed run loses at most, besides the image that it was at


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a translation does, known before any work.

    Attributes:
        images: those to translate, by image id -> what they hold.
        kept: those that stay as they are -> what they hold; None where that is not known.
        empty: those without descriptors.
        target: what the images become.
        unequal: those with other numbers of keypoints and descriptors.
    """

    images: dict[str, DescriptorSpec]
    kept: dict[str, DescriptorSpec | None]
    empty: list[str]
    target: DescriptorSpec
    unequal: list[str]

    @property
    def sources(self) -> list[str]:
        return sorted({spec.name for spec in self.images.values()})

    def counts(self) -> dict[str, int]:
        """For the summary."""
        return {
            "images": len(self.images),
            "images_kept": len(self.kept),
            "images_without_descriptors": len(self.empty),
        }

    def warnings(self, reader: DatabaseReader) -> list[str]:
        """What the database gives reason to warn of."""
        found = []
        if not self.images:
            found.append(f"no image was translated: all hold {self.target.name!r} already")
        if self.unequal:
            text = console.counted(len(self.unequal), "image has", "images have")
            text += f" other numbers of keypoints and descriptors, first {self.unequal[0]!r}"
            found.append(f"{text}; they can be translated, but not matched")
        return found + again((spec, reader.translated_from(name)) for name, spec in self.images.items())


def plan(reader: DatabaseReader, translator: Translator, source: str | None, target: str) -> Plan:
    """Looks at all images without reading their descriptors.

    Args:
        reader: the database.
        translator: the model.
        source: translates the images that hold this, and those of which the database does not say what they
            hold; None translates each from what it holds, but those that hold `target` already.
        target: what to make.

    Raises:
        ValueError: an image that holds what the model does not take, rows that are damaged or of another width,
            or nothing to translate.
    """
    end = translator.spec(target)
    given = translator.spec(source) if source is not None else None
    if given is not None and given.name == end.name:
        raise ValueError(f"{reader.path}: nothing to translate: --descriptor and --target are both {given.name!r}")
    by_id = sorted(reader.ids, key=reader.ids.__getitem__)
    keypoints, descriptors = reader.blobs("keypoints"), reader.blobs("descriptors")
    result = Plan({}, {}, [], end, [])
    for name in by_id:
        image_id = reader.ids[name]
        row = descriptors.get(image_id)
        recorded = reader.spec(name)
        rows = row.rows if row is not None else 0
        if rows == 0 and recorded is None:
            result.empty.append(name)
            continue
        if rows != (keypoints[image_id].rows if image_id in keypoints else 0):
            result.unequal.append(name)
        spec = reader.check_descriptors(name, recorded or given)
        assert spec is not None
        if given is not None and spec.name != given.name:
            result.kept[name] = recorded
            continue
        expected = known(f"{reader.path}: {name!r}", spec, translator)
        if spec.name == end.name:
            result.kept[name] = recorded
        else:
            result.images[name] = expected
    if not result.images and (given is not None or not result.kept):
        held = sorted({spec.name for spec in result.kept.values() if spec is not None})
        what = f"image holds {source!r}, they hold {', '.join(held)}" if held else "image has descriptors"
        raise ValueError(f"{reader.path}: nothing to translate: no {what} ({console.counted(len(by_id), 'image')})")
    for spec in {spec.name: spec for spec in result.images.values()}.values():
        stream = translator.stream(spec.name, target)  # tells of networks that the model lacks
        stream.check_rendered(reader.attributes.get(VIEW), str(reader.path))
    return result


def known(where: str, spec: DescriptorSpec, translator: Translator) -> DescriptorSpec:
    """The model's spec of what `where` holds; raises ValueError where it has none, or one of another width."""
    try:
        expected = translator.spec(spec.name)
    except ValueError as error:
        raise ValueError(f"{where} holds {spec.name!r}, which the model cannot take: {error}") from error
    if (spec.width, spec.kind) != (expected.width, expected.kind):
        raise ValueError(
            f"{where}: its {spec.name!r} is {spec.kind} of width {spec.width}, "
            f"but the model has {translator.describe()}"
        )
    return expected


def translate_images(
    reader: DatabaseReader,
    plan: Plan,
    out: Path,
    translator: Translator,
    attributes: Mapping[str, str],
    summary: Path,
    view: View | None = None,
) -> list[Stream]:
    """Writes the new database, image by image.

    Args:
        reader: the database, opened.
        plan: of its images.
        out: the new database.
        translator: the model.
        attributes: of the new file; `config_hash` tells partial files apart.
        summary: of an older `out`; removed right before the new one appears.
        view: whose rows are made, in place of those of the photos as they lie, of images that have others in it.

    Returns:
        The stream of each source, which knows how many rows it saw and what they give reason to warn of.

    Raises:
        ValueError: rows that do not fit what they are said to be, or a database changed by others meanwhile.
        OSError: `out` cannot be written; a partial file stays, from which the next run goes on.
    """
    streams: dict[str, Stream] = {}
    with DatabaseWriter(reader, out, resume=attributes["config_hash"]) as writer:
        done = {name for name in plan.images if writer.held(name) == plan.target.name}
        if writer.resumed:
            console.info(f"going on: {len(done):,} of {len(plan.images):,} images are translated")
        ratios = ratio_keys.parse(reader.attributes.get(RATIOS), reader.path) if plan.kept else {}
        last = time.monotonic()
        for name, spec in console.track(list(plan.images.items()), "translating", "images", finished=len(done)):
            if spec.name not in streams:
                streams[spec.name] = translator.stream(spec.name, plan.target.name, packed=spec.binary, storage=True)
            stream, where = streams[spec.name], f"{reader.path}: {name!r}"
            rows = reader.descriptors(name, spec)
            origin, kept = trace(spec, reader.translated_from(name), plan.target, translator.bundle.ratios)
            ratios |= kept
            keypoints = reader.keypoints(name) if stream.takes_frames or stream.takes_context else None
            frames = of_colmap(keypoints) if keypoints is not None and stream.takes_frames else None
            if name in done:
                stream.observe(rows, where, frames)
                continue
            positions = keypoints[:, :2] if keypoints is not None else None
            at = view if stream.takes_views else None
            translated = stream(rows, where=where, frames=frames, positions=positions, view=at)
            writer.set_descriptors(name, translated, plan.target, origin)
            if time.monotonic() - last >= COMMIT_SECONDS:
                writer.checkpoint()
                last = time.monotonic()
        for name, kept_spec in plan.kept.items():
            if kept_spec is not None:
                writer.record(name, kept_spec, reader.translated_from(name))
        for key, value in {**attributes, RATIOS: json.dumps(ratios)}.items():
            writer.set_attribute(key, value)
        reader.check_unchanged()
        summary.unlink(missing_ok=True)
    return list(streams.values())
