"""A process that introduces itself and answers nothing: `python -m tests.support.mute_process FOLDER`."""

import sys
import time

if __name__ == "__main__":
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    time.sleep(600)
