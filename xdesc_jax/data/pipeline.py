"""Batches from a TFDS dataset (TFRecord shards) through tf.data.

In: a records folder in the 'tfds' format. Out: the numpy batches of `source.Source`. tf.data reads and parses
ahead in its own threads, and parses many rows at once, as parsing them one by one is six times slower.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdesc_jax.data.builder import shard_path
from xdesc_jax.data.host_tensorflow import tf
from xdesc_jax.data.source import Columns, ShardedSource

CHUNK_ROWS = 2048  # parsed at once; larger ones fall out of the processor's cache
PARSERS = 2  # chunks parsed at the same time
AHEAD = 8  # parsed chunks that wait


class RecordSource(ShardedSource):
    """Batches from the tfds format, a window of shards in memory. Arguments as for `ShardedSource`."""

    def _read_shards(self, shards: list[int]) -> Iterator[Columns]:
        names = [str(shard_path(self.info, self.split, shard)) for shard in shards]
        rows = [self._order.shard_rows[shard] for shard in shards]
        chunks = self._chunks(names, rows).as_numpy_iterator()
        for index, (name, expected) in enumerate(zip(names, rows, strict=True)):
            found = 0
            while found < expected:
                try:
                    its, columns = next(chunks, (None, {}))
                except (tf.errors.OpError, UnicodeDecodeError) as error:
                    # TensorFlow puts the record itself in its messages, or fails at that.
                    why = str(error.message).splitlines()[0] if isinstance(error, tf.errors.OpError) else "no example"
                    raise ValueError(f"{name}: damaged behind row {found} ({why})") from error
                if its != index:
                    raise ValueError(f"{name}: damaged, has {found} rows, expected {expected}")
                found += len(next(iter(columns.values())))
                yield columns

    def _chunks(self, names: list[str], rows: list[int]) -> tf.data.Dataset:
        """(index of the shard, columns) of chunks that do not cross shards, in order."""

        def read(index: tf.Tensor, name: tf.Tensor, count: tf.Tensor) -> tf.data.Dataset:
            records = tf.data.TFRecordDataset(name, buffer_size=8 << 20).take(count)
            return records.batch(CHUNK_ROWS).map(lambda chunk: (index, chunk))

        shards = tf.data.Dataset.from_tensor_slices((range(len(names)), names, tf.constant(rows, tf.int64)))
        parsed = shards.flat_map(read).map(self._parse, num_parallel_calls=PARSERS, deterministic=True)
        return parsed.prefetch(AHEAD)

    def _parse(self, index: tf.Tensor, chunk: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        features = {name: tf.io.FixedLenFeature([], tf.string) for name in self._columns}
        parsed = tf.io.parse_example(chunk, features)
        columns = {}
        for name, column in self._columns.items():
            values = tf.io.decode_raw(parsed[name], column.dtype, fixed_length=column.row_bytes)
            columns[name] = tf.reshape(values, [-1, *column.shape])
        return index, columns
