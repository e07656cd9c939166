"""The ways in which the requests of one process can share the model."""

from enum import StrEnum


class SchedulerMode(StrEnum):
    """`serial` answers one request after the other; the rest let requests share rounds."""

    SERIAL = "serial"
    SOLO_MTP = "solo_mtp"
    HYPER = "hyper"
    AR_BATCH = "ar_batch"
    MTP_BATCH = "mtp_batch"
    COOPERATIVE = "cooperative"
