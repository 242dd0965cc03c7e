"""What it gains in training that the process keeps the memory that it frees.

    python benchmarks/allocator.py

Steps of a U-Net and Conv-4 on 80 images of 84x84, one thread, each way in a process of its own, in turn.
"""

import resource
import subprocess
import sys
import time
from statistics import median

import torch

from sfumato.allocator import keep_memory
from sfumato.networks import Conv4, UNet
from sfumato.precision import autocast, resolve

STEPS, ROUNDS = 5, 3


def steps(*, keep: bool) -> tuple[float, int]:
    """Seconds of a step, and the peak of memory in MiB."""
    torch.set_num_threads(1)
    if keep and not keep_memory():
        raise SystemExit("this allocator cannot be told")
    network = torch.nn.Sequential(UNet(3, width=16), Conv4(3)).to(memory_format=torch.channels_last)
    optimiser = torch.optim.Adam(network.parameters())
    images = torch.rand(80, 3, 84, 84).contiguous(memory_format=torch.channels_last)
    times = []
    for _ in range(STEPS + 1):
        start = time.perf_counter()
        with autocast(resolve("auto"), images.device):
            loss = network(images).float().square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        times.append(time.perf_counter() - start)
    return median(times[1:]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    if len(sys.argv) > 1:
        print(*steps(keep=sys.argv[1] == "keep"))
        return
    found: dict[str, list[list[float]]] = {"as it is": [], "keep": []}
    for _ in range(ROUNDS):
        for way, each in found.items():
            said = subprocess.run([sys.executable, __file__, way], capture_output=True, text=True, check=True)
            each.append([float(number) for number in said.stdout.split()])
    base = median(seconds for seconds, _ in found["as it is"])
    for way, each in found.items():
        took, most = (median(numbers) for numbers in zip(*each, strict=True))
        print(f"{way:10s} {1e3 * took:7.1f} ms a step, {base / took:4.2f}x, peak {most:,.0f} MiB")


if __name__ == "__main__":
    main()
