#!/bin/bash
# A sweep as a Slurm job array, one shard a job:
#
#   sbatch --array=0-7 pipelines/sweep_slurm.sh configs/sweep_loss.py RECORDS sweeps/loss
#
# Indices start at 0. The same line again goes on with what has not ended; `xdesc sweep report sweeps/loss` shows what
# has. SIGTERM comes two minutes before the end of the job's time: the shard saves, and the job puts itself back.
# Slurm alone would put back only what it preempts or what loses its node.
#SBATCH --job-name=xdesc-sweep
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: sbatch --array=0-N $0 CONFIG RECORDS WORKDIR" >&2; exit 2; }

# Without srun, which kills what it runs when SIGTERM comes to itself.
stopped=
trap 'stopped=yes; kill -TERM "$!"' TERM
xdesc sweep --config "$1" --data "$2" --workdir "$3" --require-accelerator \
    --shard "${SLURM_ARRAY_TASK_ID:?submit with --array=0-N}/${SLURM_ARRAY_TASK_COUNT:?}" --steps-per-dispatch 16 &
wait "$!" && status=0 || status=$?
if [ -n "$stopped" ]; then  # the signal ended that wait, and not the training
    wait "$!" && scontrol requeue "${SLURM_JOB_ID:?}" && status=0 || status=$?
fi
exit "$status"
