"""The README's two commands, as strangers' machines would run them: `make fresh`.

What is committed is cloned into a temporary folder and run with an empty home, no caches, and an
environment of two variables. There are three machines: with Chromium and the DejaVu fonts alone,
with Chromium and the Liberation fonts alone, without Chromium. On the last, the tests of the site
are skipped and say so.

    python -m tests.fresh [dejavu | liberation | no-browser …]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
FONTS = Path("/usr/share/fonts/truetype")
MACHINES = {"dejavu": "dejavu", "liberation": "liberation", "no-browser": "dejavu"}
"""The folder of fonts of each; Debian's packages are fonts-dejavu-core and fonts-liberation."""

FONTCONFIG = "<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>\n"


def environment(machine: str, folder: Path) -> dict[str, str]:
    """Return the environment of a machine that has nothing of ours; make its folders."""
    fonts = FONTS / MACHINES[machine]
    if not fonts.is_dir():
        raise SystemExit(f"{machine}: {fonts} must be there, from Debian's package fonts-…")
    programs, home = folder / "bin", folder / "home"
    programs.mkdir()
    home.mkdir()
    for place in map(Path, ("/bin", "/usr/bin", "/usr/local/bin")):
        for program in place.iterdir():
            link = programs / program.name
            if not (link.is_symlink() or (machine == "no-browser" and "chromium" in link.name)):
                link.symlink_to(program)
    settings = folder / "fonts.conf"
    settings.write_text(FONTCONFIG.format(fonts=fonts, cache=folder / "font-cache"), "utf-8")
    return {"PATH": str(programs), "HOME": str(home), "FONTCONFIG_FILE": str(settings)}


def run(command: list[str], folder: Path, variables: dict[str, str]) -> bool:
    """Run a command, print its last lines and what it took, and return whether it succeeded."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = (done.stdout + done.stderr).splitlines()[-40 if done.returncode else -6 :]
    print(*(f"    {line}" for line in lines), sep="\n")
    minutes = f"{(time.monotonic() - start) / 60:.1f} minutes, {processor / 60:.1f} of processor"
    print(f"  {' '.join(command[:2])}: exit status {done.returncode}; {minutes}", flush=True)
    return done.returncode == 0


def passes(machine: str) -> bool:
    """Return whether both commands succeed on a machine."""
    print(f"=== {machine}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fresh-") as name:
        folder = Path(name)
        variables = environment(machine, folder)
        clone = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        python = f"PYTHON={Path(sys.base_prefix, 'bin', 'python3')}"
        commands = (["make", "book", python], ["make", "test", python])
        return all(run(command, clone, variables) for command in commands)


def main() -> int:
    """Try the machines; return how many of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fresh", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("machines", nargs="*", default=list(MACHINES), metavar="machine")
    machines = parser.parse_args().machines
    if unknown := set(machines) - MACHINES.keys():
        parser.error(f"machine must be one of {', '.join(MACHINES)}, got {', '.join(unknown)}")
    return sum(not passes(machine) for machine in machines)


if __name__ == "__main__":
    sys.exit(main())
