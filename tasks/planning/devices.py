"""Devices that a run may be planned for, by their makers' data sheets, and how many of them: `8xH200`, `2x8xH100`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tasks.core.errors import UserError, nearest

NETWORK = 50e9  # bytes a second between devices of different machines: 400 Gb/s for each device


@dataclass(frozen=True, kw_only=True)
class Device:
    """memory in bytes; half and single: operations a second of dense products in bfloat16 and in float32;
    bandwidth of its memory, and link to the others of its machine in one direction, in bytes a second; overlaps: whether it
    computes while bytes come and go, as a GPU does and a core of a CPU, which moves them itself, does not."""

    memory: float
    half: float
    single: float
    bandwidth: float
    link: float
    overlaps: bool = True


def _device(gib: float, half: float, single: float, bandwidth: float, link: float) -> Device:
    """A device from the numbers of its data sheet: GiB, Tflop/s, Tflop/s, TB/s, GB/s."""
    return Device(
        memory=gib * 2**30, half=half * 1e12, single=single * 1e12, bandwidth=bandwidth * 1e12, link=link * 1e9
    )


DEVICES = {
    "A10G": _device(22, 70, 35, 0.60, 32),
    "A100-40": _device(39, 312, 19.5, 1.56, 300),
    "A100": _device(79, 312, 19.5, 2.04, 300),
    "B200": _device(178, 2250, 75, 7.7, 900),
    "H100": _device(79, 989, 67, 3.35, 450),
    "H200": _device(139, 989, 67, 4.8, 450),
    "L4": _device(22, 121, 30, 0.30, 32),
    "L40S": _device(44, 362, 91, 0.86, 32),
    "RTX3090": _device(23, 71, 35, 0.94, 16),
    "RTX4090": _device(23, 165, 82, 1.01, 16),
}


@dataclass(frozen=True)
class Machines:
    """`nodes` machines with `each` devices."""

    nodes: int
    each: int
    name: str
    device: Device

    @property
    def devices(self) -> int:
        return self.nodes * self.each

    def link(self, processes: int) -> float:
        """Bytes a second between this many consecutive processes."""
        return self.device.link if processes <= self.each else min(self.device.link, NETWORK)


def machines(text: str) -> Machines:
    """Parses `H200`, `8xH200` or `2x8xH200` (machines x devices of each). Raises UserError for anything else."""
    match = re.fullmatch(r"(?:(\d+)x)?(?:(\d+)x)?([A-Za-z][\w-]*)", text)
    if match is None:
        raise UserError(f"--gpus {text}: write how many and which, for example 8xH200, or 2x8xH200 for two machines")
    first, second, name = match.groups()
    known = {n.lower(): n for n in DEVICES}
    if name.lower() not in known:
        raise UserError(f"--gpus {text}: there is no device {name!r} here: {nearest(name, DEVICES)}")
    nodes, each = (int(first), int(second)) if second else (1, int(first or 1))
    if not nodes * each:
        raise UserError(f"--gpus {text}: it must be one device or more")
    return Machines(nodes, each, known[name.lower()], DEVICES[known[name.lower()]])
