"""TensorFlow's strategy over several hosts."""

import functools
import signal

import tensorflow as tf

from extensions.cluster.hosts import Hosts
from pipelines.base.errors import ConfigError


@functools.cache
def over_hosts(every: tuple[tuple[str, ...], ...], hosts: Hosts) -> tf.distribute.Strategy:
    """The strategy over all hosts, one in a process; to be built before this process computes anything.

    Args:
        every: the names of the devices of each host.

    Raises:
        ConfigError: a host has other devices than the chief, or the names of devices do not suit several hosts.
    """
    kinds = [f"{len(each)} x {each[0].partition(':')[0]}" for each in every]
    for number, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ConfigError(f"train.devices: host {number} ({hosts.addresses[number]}) has {kind}, and host 0 has {kinds[0]}; "
                              "each needs as many of one kind")
    names = every[hosts.number]
    if names != tuple(f"{names[0][:3]}:{number}" for number in range(len(names))):
        raise ConfigError(f"train.devices: {', '.join(names)} on several hosts; give a number, and choose GPUs by CUDA_VISIBLE_DEVICES")
    if names[0].startswith("GPU"):
        tf.config.set_visible_devices(tf.config.get_visible_devices("GPU")[:len(names)], "GPU")
    elif len(names) > 1:
        raise ConfigError(f"train.devices: {len(names)} CPU devices on several hosts; each host's CPU is one device, write auto or cpu")
    cluster = tf.train.ClusterSpec({"worker": list(hosts.addresses)})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="worker", task_id=hosts.number, num_accelerators={"GPU": len(names)} if names[0].startswith("GPU") else {},
        rpc_layer="grpc")
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM) or signal.SIG_DFL)  # TensorFlow has taken it, to do nothing
    return strategy
