"""The entry point of ``gomq-py-pipeline`` and ``python -m gomq_py.pipeline``."""
import sys

EXIT_INTERRUPTED = 130  # 128 plus the signal's number, as in shells


def main():
    """Run one command. Exit code 0: success; 1: a job failed; 2: wrong command line; 130: early Ctrl-C."""
    try:
        from gomq_py.pipeline.cli import pipeline  # here: Ctrl-C may arrive during the import
        return pipeline.main(prog_name="gomq-py-pipeline", standalone_mode=True)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
