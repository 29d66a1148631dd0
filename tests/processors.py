"""``make processors``: the C of gomq_py/octets.pxd for other processors,
cross-compiled and run under qemu-user.

aarch64 has instructions for CRC-32C, which the compiler may use everywhere or which the program asks the
kernel for; s390x has none that are used, and its octets are in the other order. Only this C runs: a broker
on these processors is untried.
"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import octets_in_c

# Processor -> what is compiled for it, each a list of flags.
PROCESSORS = {"aarch64": ([], ["-march=armv8.1-a"]), "s390x": ([],)}
PACKAGES = "gcc-{0}-linux-gnu libc6-dev-{1}-cross qemu-user"
NAMES_IN_DEBIAN = {"aarch64": "arm64"}


def main():
    missing = set()
    for processor, variants in PROCESSORS.items():
        compiler, emulator = f"{processor}-linux-gnu-gcc", f"qemu-{processor}"
        if shutil.which(compiler) is None or shutil.which(emulator) is None:
            missing |= set(PACKAGES.format(processor, NAMES_IN_DEBIAN.get(processor, processor)).split())
            continue
        for flags in variants:
            with tempfile.TemporaryDirectory() as folder:
                program = octets_in_c.compiled(Path(folder), compiler, "-static", *flags)
                print(processor, *flags, flush=True)
                subprocess.run([emulator, program], check=True)
    if missing:
        sys.exit("apt-get install " + " ".join(sorted(missing)))


if __name__ == "__main__":
    main()
