"""The ids of all errors, in one table: short, stable, and never used for anything else again.

A member that belongs to a class has its name; the others are the ways in which a command fails that no error class
stands for. `stepwell explain ID` prints what is to be known about one.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorId(StrEnum):
    """The id of an error class, or of a way in which a command fails."""

    # The bases
    StepwellError = "SW001"
    RunError = "SW002"
    RequestError = "SW003"
    DurabilityError = "SW004"

    # A definition is wrong
    DefinitionError = "SW101"
    ConditionFailed = "SW102"

    # A run cannot continue
    HandlerFailed = "SW201"
    HandlerTimeout = "SW202"
    StepFailed = "SW203"
    StepChanged = "SW204"
    RoutingFailed = "SW205"
    SuperstepLimit = "SW206"
    StateConflict = "SW207"
    InputMismatch = "SW208"
    RunSetAside = "SW209"
    PrivateMissing = "SW210"
    UnknownRequest = "SW211"
    ResponseRejected = "SW212"
    RequestExpired = "SW213"
    MissingInput = "SW214"
    OutputRejected = "SW215"
    LoopLimit = "SW216"
    WorkflowTimeout = "SW217"
    Interrupted = "SW218"

    # What is stored cannot be trusted or reached
    CheckpointMissing = "SW301"
    CheckpointCorrupt = "SW302"
    CannotUnseal = "SW303"
    CommitConflict = "SW304"
    RunBusy = "SW305"
    GraphChanged = "SW306"
    MigrationFailed = "SW307"
    StoreUnavailable = "SW308"
    NewerFormat = "SW309"
    CodecError = "SW310"

    # Something from outside is refused: administration, server, webhooks, tests
    NotFound = "SW401"
    Ambiguous = "SW402"
    NotForked = "SW403"
    EditRefused = "SW404"
    ImportRefused = "SW405"
    Unauthorized = "SW411"
    Forbidden = "SW412"
    RequestRefused = "SW413"
    DeliveryFailed = "SW421"
    BadSignature = "SW422"
    UnknownWebhook = "SW423"
    Crash = "SW431"
    NotTheSame = "SW432"

    # A command fails
    UNEXPECTED = "SW500"
    WRONG_USAGE = "SW501"
    NOT_INSTALLED = "SW502"
    NO_STORE = "SW503"
    NOT_A_STORE = "SW504"
    WRONG_SETTING = "SW505"
    WRONG_KEYS = "SW506"
    NO_CODE = "SW507"
    CODE_FAILED = "SW508"
    NOT_A_WORKFLOW = "SW509"
    WRONG_FILE = "SW510"
    WRONG_INPUT = "SW511"
    RUN_FAILED = "SW512"
    RUN_CANCELLED = "SW513"
    RUN_LEFT = "SW514"
    UNCONFIRMED = "SW515"
    NO_SERVER = "SW516"
    WRONG_RESPONSE = "SW517"
    NOT_OPEN = "SW518"
    NOBODY_TO_ASK = "SW519"
    NOT_THE_HEAD = "SW520"
    UNSEALED_EXPORT = "SW521"
    NOT_COMPACTED = "SW522"
    NOT_UPGRADED = "SW523"
    SYSTEM_ERROR = "SW524"
    UNKNOWN_ID = "SW525"
