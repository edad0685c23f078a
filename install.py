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

WITHOUT_CUDA = ("--index-url", "https://download.pytorch.org/whl/cpu", "--retries", "1")
UV = "uv==0.13.9"


def ran(*command: str) -> bool:
    """Run a module of this Python; return whether it succeeded."""
    return subprocess.run([sys.executable, "-m", *command], check=False).returncode == 0


def main() -> int:
    """Install the pins; return 0, or 1 where that failed."""
    pins = Path(sys.argv[1] if len(sys.argv) > 1 else "requirements.txt")
    torch = re.search(r"^torch\b.*$", pins.read_text("utf-8"), re.MULTILINE)
    quietly = ("pip", "install", "--quiet")
    if torch and not shutil.which("nvidia-smi"):
        ran(*quietly, "--no-deps", *WITHOUT_CUDA, torch[0])
    if ran(*quietly, UV):
        uv = ("uv", "pip", "install", "--quiet", "--python", sys.executable)
        if ran(*uv, "--requirement", str(pins)):
            return 0
    return 0 if ran(*quietly, "--requirement", str(pins)) else 1


if __name__ == "__main__":
    sys.exit(main())
