"""Taxonomy v1: the frozen words in which every event is classified.

Three axes that are never folded into one: the *class* says how a failure shows itself, the *symptom* says
what was seen, the *cause* says what broke. A line such as "watchdog time-out" is a symptom; a table that
lists it beside "memory" mixes two axes, and a count over such a table answers no question.

*Correlated* is an attribute of an incident and not a class: a view may print it as one (`CountedClass`).

The words live in `taxonomy_v1.json`; `TAXONOMY_ID` carries the SHA-256 of that file's bytes, and every
event that names the taxonomy names the bytes. A new word is a new version: the old file stays as it is.
"""

from __future__ import annotations

import enum

TAXONOMY_NAME = "lastgood-taxonomy/1"
TAXONOMY_SHA256 = "7e1dbdd26d9230deed31dea8094e100f85651fe8838b6084752bba9e7ce3d0fc"
TAXONOMY_ID = f"{TAXONOMY_NAME}@sha256:{TAXONOMY_SHA256}"


class FailureClass(enum.StrEnum):
    """How a failure shows itself."""

    PLANNED = "planned"
    """Known in advance: an operator, software, data or maintenance event."""
    FAIL_STOP = "fail_stop"
    """A process or collective ended with an explicit signal."""
    FAIL_SLOW = "fail_slow"
    """The process lives, progress is slower or has stopped."""
    SDC = "sdc"
    """A wrong value without an error (silent data corruption)."""


class CountedClass(enum.StrEnum):
    """What a contract may count: the four classes, and correlated incidents as if they were a class."""

    PLANNED = "planned"
    FAIL_STOP = "fail_stop"
    FAIL_SLOW = "fail_slow"
    SDC = "sdc"
    CORRELATED = "correlated"


class Symptom(enum.StrEnum):
    """What was seen. It is never the cause: one symptom has several causes in every published table."""

    PROCESS_EXIT = "process_exit"
    EXCEPTION = "exception"
    HANG = "hang"
    GROUP_ERROR = "group_error"
    SLOW = "slow"
    NONFINITE = "nonfinite"
    NUMERIC_JUMP = "numeric_jump"
    REPLICA_DIVERGENCE = "replica_divergence"
    SNAPSHOT_MISMATCH = "snapshot_mismatch"
    REPLAY_MISMATCH = "replay_mismatch"
    WATCHDOG_TIMEOUT = "watchdog_timeout"
    OUT_OF_MEMORY = "out_of_memory"
    DEVICE_ERROR = "device_error"
    MEMORY_ERROR = "memory_error"
    LINK_ERROR = "link_error"
    HOST_UNREACHABLE = "host_unreachable"
    STORAGE_ERROR = "storage_error"
    CHECKPOINT_FAILED = "checkpoint_failed"
    HEALTH_CHECK_FAILED = "health_check_failed"
    GOLDEN_MISMATCH = "golden_mismatch"
    PREEMPTION_NOTICE = "preemption_notice"
    LATE_OUTPUT = "late_output"
    WRONG_OUTPUT = "wrong_output"
    HANDOFF_FAILED = "handoff_failed"
    POSTCONDITION_FAILED = "postcondition_failed"
    UNKNOWN = "unknown"


class Cause(enum.StrEnum):
    """What broke, as a leaf of a tree: the part before the dot is the branch."""

    GPU_MEMORY = "gpu.memory"
    GPU_COMPUTE = "gpu.compute"
    GPU_LINK = "gpu.link"
    GPU_BUS = "gpu.bus"
    GPU_FIRMWARE = "gpu.firmware"
    GPU_THERMAL = "gpu.thermal"
    GPU_UNKNOWN = "gpu.unknown"
    HOST_CPU = "host.cpu"
    HOST_MEMORY = "host.memory"
    HOST_POWER = "host.power"
    HOST_PCIE = "host.pcie"
    HOST_OS = "host.os"
    HOST_DISK = "host.disk"
    HOST_CHASSIS = "host.chassis"
    NETWORK_NIC = "network.nic"
    NETWORK_CABLE = "network.cable"
    NETWORK_SWITCH = "network.switch"
    NETWORK_FABRIC = "network.fabric"
    STORAGE_FS = "storage.fs"
    STORAGE_OBJECT = "storage.object"
    STORAGE_CHECKPOINT = "storage.checkpoint"
    FACILITY_POWER = "facility.power"
    FACILITY_COOLING = "facility.cooling"
    SOFTWARE_USER = "software.user"
    SOFTWARE_FRAMEWORK = "software.framework"
    SOFTWARE_DRIVER = "software.driver"
    SOFTWARE_SCHEDULER = "software.scheduler"
    SOFTWARE_RELEASE = "software.release"
    DATA = "data"
    OPERATOR = "operator"
    EXTERNAL = "external"
    UNKNOWN = "unknown"

    @property
    def branch(self) -> str:
        """The first part: `gpu` of `gpu.memory`, `data` of `data`."""
        return self.value.partition(".")[0]


class CauseStatus(enum.StrEnum):
    """How well the cause is known."""

    ESTABLISHED = "established"
    SUPPORTED = "supported"
    HYPOTHESIS = "hypothesis"
    UNKNOWN = "unknown"


class Role(enum.StrEnum):
    """The part that an event plays in its incident."""

    INITIATING = "initiating"
    CASCADE = "cascade"
    TEARDOWN = "teardown"
    CONTEXT = "context"
    UNKNOWN = "unknown"


class DomainKind(enum.StrEnum):
    """What fails together."""

    RANK = "rank"
    DEVICE = "device"
    HOST = "host"
    RACK = "rack"
    SWITCH = "switch"
    STORAGE = "storage"
    POWER = "power"
    RELEASE = "release"
    SITE = "site"


class EventKind(enum.StrEnum):
    """What an event of the ledger records."""

    RUN_START = "run.start"
    RUN_END = "run.end"
    ATTEMPT_START = "attempt.start"
    ATTEMPT_END = "attempt.end"
    EXPOSURE_JOIN = "exposure.join"
    EXPOSURE_LEAVE = "exposure.leave"
    STEP = "step"
    SECTION_BEGIN = "section.begin"
    SECTION_END = "section.end"
    INCIDENT_OPEN = "incident.open"
    DETECT = "detect"
    DIAGNOSE = "diagnose"
    ISOLATE = "isolate"
    RESTORE_BEGIN = "restore.begin"
    RESTORE = "restore"
    VERIFY = "verify"
    STATE_TRUST = "state.trust"
    INCIDENT_CLOSE = "incident.close"
    CHECKPOINT_BEGIN = "checkpoint.begin"
    CHECKPOINT_COMMIT = "checkpoint.commit"
    CHECKPOINT_FAIL = "checkpoint.fail"
    INVENTORY = "inventory"
    PLANNED_BEGIN = "planned.begin"
    PLANNED_END = "planned.end"
    ESCALATE = "escalate"
    ANNOTATION = "annotation"
    CORRECTION = "correction"
    OBSERVATION = "observation"
    RECORD = "record"


AXES: dict[str, type[enum.StrEnum]] = {
    "class": FailureClass,
    "symptom": Symptom,
    "cause": Cause,
    "cause_status": CauseStatus,
    "role": Role,
    "domain": DomainKind,
    "event": EventKind,
}
"""Every axis of the taxonomy under its name in the data file."""


_CLASS_OF = {
    Symptom.PROCESS_EXIT: FailureClass.FAIL_STOP,
    Symptom.EXCEPTION: FailureClass.FAIL_STOP,
    Symptom.GROUP_ERROR: FailureClass.FAIL_STOP,
    Symptom.HANG: FailureClass.FAIL_SLOW,
    Symptom.SLOW: FailureClass.FAIL_SLOW,
    Symptom.NONFINITE: FailureClass.SDC,
    Symptom.NUMERIC_JUMP: FailureClass.SDC,
    Symptom.REPLICA_DIVERGENCE: FailureClass.SDC,
    Symptom.SNAPSHOT_MISMATCH: FailureClass.SDC,
    Symptom.REPLAY_MISMATCH: FailureClass.SDC,
}


def class_of(symptom: str) -> FailureClass:
    """The class of a failure of which a detector saw no more than its symptom.

    Raises:
        KeyError: no detector of a job names this symptom; who imports it says its class.
    """
    return _CLASS_OF[Symptom(symptom)]
