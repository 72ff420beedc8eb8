"""A training as one of several hosts, which sends itself a signal at a batch; argv[1] is the case, in JSON."""

import json
import os
import signal
import sys
import time

from tests.support import thin_network
from xdesc_jax import cli
from xdesc_jax.train import hosts
from xdesc_jax.train.devices import Devices

case = json.loads(sys.argv[1])
batches_of = Devices.batches


def with_signal(*arguments):
    batches = batches_of(*arguments)
    placed = []

    def place(group):
        placed.append(group)
        if len(placed) == case["batch"]:
            os.kill(os.getpid(), signal.Signals[case["signal"]])
            while case["signal"] == "SIGTERM" and hosts._watch._last is None:
                time.sleep(0.05)  # until the hosts have agreed where to stop: so few steps are soon over
        return batches.place(group)

    return batches._replace(place=place)


if case["thin"]:
    thin_network.make_thin()
if case.get("signal"):
    Devices.batches = with_signal
sys.exit(cli.main(case["arguments"]))
