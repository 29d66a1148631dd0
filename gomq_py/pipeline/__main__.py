"""Runs ``gomq-py-pipeline`` and ``python -m gomq_py.pipeline``."""
import sys

EXIT_INTERRUPTED = 130  # 128 plus the signal's number, as in shells


def main():
    """Run one command. Exit code 0 if it succeeded, 1 if a job failed, 2 if it was called wrongly."""
    try:
        from gomq_py.pipeline.cli import pipeline  # here: Ctrl-C may arrive during the import
        return pipeline.main(prog_name="gomq-py-pipeline", standalone_mode=True)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
