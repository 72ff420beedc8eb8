"""Batches from a TFDS dataset (TFRecord shards) through tf.data.

In: a records folder in the 'tfds' format. Out: the numpy batches of `source.Source`. tf.data reads and parses
shards ahead in its own threads: whole shards are parsed at once, as parsing row by row is six times slower.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdesc_jax.data.builder import shard_path
from xdesc_jax.data.host_tensorflow import tf
from xdesc_jax.data.source import Columns, ShardedSource

READERS = 2  # shards read at the same time; parsing uses all cores besides
AHEAD = 2  # parsed shards that wait


class RecordSource(ShardedSource):
    """Batches from the tfds format, a window of shards in memory. Arguments as for `ShardedSource`."""

    def _read_shards(self, shards: list[int]) -> Iterator[Columns]:
        names = [str(shard_path(self.info, self.split, shard)) for shard in shards]
        rows = [self._order.shard_rows[shard] for shard in shards]
        dataset = tf.data.Dataset.from_tensor_slices((names, tf.constant(rows, tf.int64)))
        dataset = dataset.map(self._read, num_parallel_calls=READERS, deterministic=True).prefetch(AHEAD)
        iterator = dataset.as_numpy_iterator()
        for name, expected in zip(names, rows, strict=True):
            try:
                columns = next(iterator)
            except tf.errors.OpError as error:
                message = f"{name}: damaged, expected {expected} whole rows ({error.message})"
                raise ValueError(message) from error
            yield columns

    def _read(self, path: tf.Tensor, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        # A batch of one row more than expected, so that a longer file is an error too.
        records = tf.data.TFRecordDataset(path, buffer_size=8 << 20).batch(rows + 1).get_single_element()
        features = {name: tf.io.FixedLenFeature([], tf.string) for name in self._columns}
        parsed = tf.io.parse_example(records, features)
        columns = {}
        for name, column in self._columns.items():
            values = tf.io.decode_raw(parsed[name], column.dtype, fixed_length=column.row_bytes)
            columns[name] = tf.reshape(values, [rows, *column.shape])
        return columns
