"""Lists the GPUs that a library has code for, and fails if one of those named is missing.

    list_targets.py libttrace_cuda.so elf:80 elf:90 ptx:100

elf:NN is machine code for GPUs of compute capability NN, ptx:NN are instructions that the driver translates for NN and
later ones. The same list comes from `cuobjdump --list-elf --list-ptx`, which not every toolkit has.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

MAGIC = 0xBA55ED50  # of a container; its header: magic, version, size of the header, size of what follows
KINDS = {1: "ptx", 2: "elf"}


def section(elf: bytes, name: bytes) -> bytes:
    """The contents of a section of a 64-bit little-endian ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    strings = headers[names][4]
    for header in headers:
        start = strings + header[0]
        if elf[start : elf.index(b"\0", start)] == name:
            return elf[header[4] : header[4] + header[5]]
    raise SystemExit(f"there is no section {name.decode()}, so the file has no code for a GPU")


def targets(containers: bytes) -> list[str]:
    found = []
    at = 0
    while at + 16 <= len(containers):
        magic, _, header, size = struct.unpack_from("<IHHQ", containers, at)
        if magic != MAGIC:
            at += 8  # containers are aligned
            continue
        entry, end = at + header, at + header + size
        while entry < end:
            kind, _, entry_header, entry_size = struct.unpack_from("<HHIQ", containers, entry)
            (capability,) = struct.unpack_from("<I", containers, entry + 28)
            found.append(f"{KINDS.get(kind, f'kind {kind}')}:{capability}")
            entry += entry_header + entry_size
        at = end
    return found


def main() -> None:
    library, *wanted = sys.argv[1:]
    found = targets(section(Path(library).read_bytes(), b".nv_fatbin"))
    print(f"{library}: {' '.join(found)}")
    missing = [target for target in wanted if target not in found]
    if missing:
        raise SystemExit(f"{library} has no {' and no '.join(missing)}")


if __name__ == "__main__":
    main()
