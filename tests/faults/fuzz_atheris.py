"""A harness fed by atheris, in a process of its own: `python -m tests.faults.fuzz_atheris HARNESS EXECUTIONS SEED CORPUS`.

CORPUS is a directory with inputs to begin with; what led to new lines of filters or topologies is put there, too, and what ends
the process as found-…. The exit status is 0 if nothing was found.
"""

import sys


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=["xump.filters", "xump.topology"]):
        from tests.faults.fuzz import BYTES_MAX, HARNESSES

    name, executions, seed, corpus = sys.argv[1:]
    atheris.Setup([sys.argv[0], f"-runs={executions}", f"-seed={int(seed) or 1}", f"-max_len={BYTES_MAX}",
                   f"-artifact_prefix={corpus}/found-", corpus], HARNESSES[name].one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
