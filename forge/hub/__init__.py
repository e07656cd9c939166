"""Checkpoints on the Hugging Face hub: metadata, downloads and searches."""

import os

from huggingface_hub.utils.logging import set_verbosity_error

if "HF_HUB_VERBOSITY" not in os.environ:
    # The library's warnings about retries quote signed URLs. Failures are told by our errors.
    set_verbosity_error()  # type: ignore[no-untyped-call]
