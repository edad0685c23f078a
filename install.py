"""Install what a list of pins names beside the Python that runs this: `python install.py [FILE]`.

PyTorch comes first, and without its gigabytes of CUDA where there is no NVIDIA GPU: from PyTorch's
own index, where no other package is looked up, or from PyPI where that cannot be reached. uv
installs the rest, in a tenth of pip's time; pip does where uv cannot, behind a mirror that pip is
configured for, say.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

WITHOUT_CUDA = ("--index-url", "https://download.pytorch.org/whl/cpu", "--retries", "0")
UV = "uv==0.13.9"

failures: list[str] = []


def run(*command: str) -> bool:
    """Run a module of this Python, and keep what it prints for the case that nothing else works."""
    command = (sys.executable, "-m", *command)
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    if finished.returncode:
        failures.append(f"{' '.join(command)}\n{finished.stdout}{finished.stderr}")
    return finished.returncode == 0


def main() -> int:
    """Install the pins; return 0, or 1 where that failed, with what was tried."""
    pins = Path(sys.argv[1] if len(sys.argv) > 1 else "requirements.txt")
    if not pins.is_file():
        print(f"{pins} is not there; it must be a list of pins", file=sys.stderr)
        return 1
    torch = re.search(r"^torch\b.*$", pins.read_text("utf-8"), re.MULTILINE)
    if torch and not shutil.which("nvidia-smi"):
        print(f"Installing {torch[0]} without CUDA", flush=True)
        run("pip", "install", "--no-deps", *WITHOUT_CUDA, torch[0])
    print(f"Installing the packages of {pins}", flush=True)
    # Behind a proxy the system knows the certificates, and uv's own list does not.
    with_uv = ("uv", "pip", "install", "--system-certs", "--python", sys.executable)
    with_uv += ("--requirement", str(pins))
    if run("pip", "install", UV) and run(*with_uv):
        return 0
    print("Installing them with pip: this takes minutes", flush=True)
    if run("pip", "install", "--requirement", str(pins)):
        return 0
    print(*failures, sep="\n", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
