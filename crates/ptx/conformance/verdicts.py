"""Asks `ptxas` whether it accepts modules of one instruction each.

    PTX_VERDICTS=FOLDER cargo test -p pagewise-ptx --test isa verdicts
    python3 verdicts.py FOLDER [PTXAS]

The first command writes `index.txt` and the modules. This script writes `verdicts.txt`: opcode, operands,
`accepted` or `refused`. `zstd -19 verdicts.txt -o ../data/verdicts.zst` makes the shipped file of it.
"""

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path


def main(folder, ptxas="ptxas"):
    lines = Path(folder, "index.txt").read_text().splitlines()

    def verdict(number):
        command = [ptxas, "-arch=sm_90", "-O0", "-o", os.devnull, str(Path(folder, f"{number}.ptx"))]
        return "refused" if subprocess.run(command, capture_output=True).returncode else "accepted"

    with concurrent.futures.ThreadPoolExecutor() as pool:
        verdicts = pool.map(verdict, range(len(lines)))
        text = "".join(f"{line}\t{verdict}\n" for line, verdict in zip(lines, verdicts))
    Path(folder, "verdicts.txt").write_text(text)
    print(text.count("\taccepted\n"), "accepted,", text.count("\trefused\n"), "refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
