"""A Ray cluster on one machine, to lose parts of."""

import contextlib
import os
import signal
import time
from pathlib import Path


class RayCluster:
    """Nodes of one core each, in processes of this machine, that can be lost."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        # Without what only shows or scales a cluster: its processes would cost more than the tasks.
        self._node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_log_monitor": False}
        head = {**self._node, "include_dashboard": False, "no_monitor": True}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        self.add_node()

    def add_node(self) -> None:
        self._cluster.add_node(**self._node)

    def remove_node(self) -> None:
        """Lose a node that no driver is connected to, at once."""
        self._cluster.remove_node(next(iter(self._cluster.worker_nodes)), allow_graceful=False)

    def kill_worker(self) -> int:
        """Kill a worker in the middle of a task, the first that is found there."""
        while True:
            for process in self._busy():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)
                    if process in self._busy():  # still, now that it cannot end its task
                        os.kill(process, signal.SIGKILL)
                        return process
                    os.kill(process, signal.SIGCONT)
            time.sleep(0.005)  # the nodes start meanwhile, on the same cores

    def shut_down(self) -> None:
        self._cluster.shutdown()

    def _busy(self) -> list[int]:
        """The workers that are at a task of an engine. Those of other clusters are no descendants of ours."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (folder / "cmdline").read_bytes().startswith(b"ray::_run_there"):
                    found.append(int(folder.name))

        def is_ours(process: int) -> bool:
            if process in (os.getpid(), 0):
                return process != 0
            try:
                status = Path(f"/proc/{process}/stat").read_text()
            except OSError:  # it ended
                return False
            return is_ours(int(status.rpartition(")")[2].split()[1]))

        return [process for process in found if is_ours(process)]
