#!/bin/sh
# One worker of a sweep under a job queue that numbers its jobs:
#
#   sh pipelines/sweep_queue.sh CONFIG RECORDS WORKDIR COUNT [INDEX]
#
# INDEX is taken from JOB_COMPLETION_INDEX (Kubernetes' indexed jobs) or AWS_BATCH_JOB_ARRAY_INDEX where it is not given;
# the folders lie where all workers see them. Run again after a failure, a worker goes on where it was. By hand, two at
# a time on one machine:
#
#   seq 0 7 | xargs -P 2 -I % sh pipelines/sweep_queue.sh configs/sweep_loss.py RECORDS sweeps/loss 8 %
set -eu
[ $# -ge 4 ] || { echo "usage: $0 CONFIG RECORDS WORKDIR COUNT [INDEX]" >&2; exit 2; }
index=${5:-${JOB_COMPLETION_INDEX:-${AWS_BATCH_JOB_ARRAY_INDEX:?no index: give it, or run under a queue that numbers jobs}}}
exec xdesc sweep --config "$1" --data "$2" --workdir "$3" --shard "$index/$4"
