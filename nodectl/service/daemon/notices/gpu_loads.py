"""A process executed by the daemon, which reads and reports the loads of GPUs.

nvidia-smi and the files of a sleeping GPU may take long, or for ever; the daemon waits for neither.
"""

import glob
import os
import subprocess
from collections.abc import Mapping

from nodectl.kernel import trust
from nodectl.model.wire import lean_json
from nodectl.spank.reporter import Reporter

_REPORT = 3
_PROGRAMS = ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi")
_ASK = ("--query-gpu=pci.bus_id,utilization.gpu", "--format=csv,noheader,nounits")
_DRIVER = "/proc/driver/nvidia/gpus"
_MINOR = "Device Minor:"


def main(_arguments: Mapping[str, object]) -> None:
    """Report the known loads of GPUs in percent, by the path of the GPU's file: JSON."""
    os.set_inheritable(_REPORT, False)
    Reporter(_REPORT).ended(lean_json.dumps({**_amd(), **_nvidia()}))
    os._exit(0)


def _amd(root: str = "/sys/class/drm") -> dict[str, int]:
    found = {}
    for path in glob.glob(f"{root}/renderD*/device/gpu_busy_percent"):
        load = _text(path).strip()
        if load.isdecimal():
            found[f"/dev/dri/{path.removeprefix(root).split('/')[1]}"] = int(load)
    return found


def _nvidia() -> dict[str, int]:
    program = next((path for path in _PROGRAMS if os.access(path, os.X_OK)), "")
    if not program or not trust.is_trusted(program) or not os.path.isdir(_DRIVER):
        return {}
    said = subprocess.run([program, *_ASK], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    minors = {address.lower(): _minor(f"{_DRIVER}/{address}/information") for address in os.listdir(_DRIVER)}
    return nvidia_loads(said.stdout, minors)


def nvidia_loads(said: str, minors: Mapping[str, str]) -> dict[str, int]:
    """Return the loads printed by nvidia-smi. `minors`: the number of each device's file, by address."""
    found = {}
    for line in said.splitlines():
        address, _, load = line.partition(", ")
        domain, _, rest = address.strip().lower().partition(":")
        minor = minors.get(f"{domain[-4:]}:{rest}", "")  # nvidia-smi writes the domain with eight digits
        if minor and load.strip().isdecimal():
            found[f"/dev/nvidia{minor}"] = int(load)
    return found


def _minor(path: str) -> str:
    lines = (line.partition(_MINOR) for line in _text(path).splitlines())
    return next((rest.strip() for _, mark, rest in lines if mark), "")


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
