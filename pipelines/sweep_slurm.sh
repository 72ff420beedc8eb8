#!/bin/bash
# A sweep as a Slurm job array, one shard a job:
#
#   sbatch --array=0-7 pipelines/sweep_slurm.sh configs/sweep_loss.py RECORDS sweeps/loss
#
# Indices start at 0. The same line again goes on with what has not ended; `xdesc sweep report sweeps/loss` shows what
# has. SIGTERM comes two minutes before the end of the job's time: the shard saves, and the job puts itself back.
#SBATCH --job-name=xdesc-sweep
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: sbatch --array=0-N $0 CONFIG RECORDS WORKDIR" >&2; exit 2; }

# srun, so that the signal reaches the training; `exec` would end the job with it.
srun xdesc sweep --config "$1" --data "$2" --workdir "$3" --require-accelerator \
    --shard "${SLURM_ARRAY_TASK_ID:?submit with --array=0-N}/${SLURM_ARRAY_TASK_COUNT:?}" --steps-per-dispatch 16
